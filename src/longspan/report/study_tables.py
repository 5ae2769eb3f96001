"""The tables of what a run's windows have learned, for a page, a terminal and a file alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .numbers import MISSING, plain
from .studies import Means, Study

__all__ = ["StudyTable", "as_markdown", "named_tokens", "study_tables"]

EXPLAINS = {
    "layer": "the layer",
    "head": "the head",
    "place": "the token in its place",
    "token": "which token it is",
    "head and token": "head and which token",
    "kind": "the kind of token",
    "word": "whether the word is in the question",
    "answer": "whether it is of the answer",
    "distance": "distance to the answer",
    "position": "position in the text",
    "begin": "distance to the text's begin",
    "end": "distance to the text's end",
}


class StudyTable(NamedTuple):
    """A table.

    Attributes:
        title: what it is about.
        columns: headings, that of the rows' names first.
        rows: names and values.
        counts: whether the first value of a row says how many tokens it is of.
        shares: whether values are shares of 1.
        compared_from: the first of a row's values that is compared with those of other columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]
    counts: bool = False
    shares: bool = False
    compared_from: int = 0

    def cells(self, values: Sequence[float | None]) -> list[str]:
        """A row's values as they are shown."""
        if self.shares:
            return [MISSING if own is None else f"{own:.0%}" for own in values]
        shown = [plain(own) for own in values]
        if self.counts and values[0] is not None:
            shown[0] = f"{values[0]:,.0f}"
        return shown


def study_tables(study: Study) -> list[StudyTable]:
    """Kinds of tokens, heads, distance to the answer, and how much each of them explains."""
    layers = [f"layer {layer.number + 1}" for layer in study.layers]
    found = []
    kinds = [study.by[name] for name in ("kind", "answer", "word") if name in study.by]
    if kinds:
        rows = [row for means in kinds for row in _rows(means)]
        columns = ("token", "tokens", "all layers", *layers)
        found.append(
            StudyTable("Reach by kind of token", columns, rows, counts=True, compared_from=1)
        )
    heads = max(len(layer.heads) for layer in study.layers)
    names = [f"head {head + 1}" for head in range(heads)]
    found.append(
        StudyTable(
            "Reach by layer and head",
            ("layer", "mean", "median", "largest", *names),
            [
                (name, (layer.mean, layer.median, layer.high, *_filled(layer.heads, heads)))
                for name, layer in zip(layers, study.layers, strict=True)
            ],
            compared_from=3,
        )
    )
    if "distance" in study.by:
        columns = ("tokens away", "tokens", "all layers", *layers)
        rows = _rows(study.by["distance"])
        found.append(
            StudyTable(
                "Reach by distance to the answer", columns, rows, counts=True, compared_from=1
            )
        )
    found.append(
        StudyTable(
            "What explains the reach",
            ("share of the variance of ln(reach)", "all layers", *layers),
            [
                (
                    EXPLAINS.get(name, name),
                    (share, *(layer.get(name) for layer in study.explained_in)),
                )
                for name, share in study.explained.items()
            ],
            shares=True,
        )
    )
    return found


def named_tokens(study: Study) -> list[tuple[str, str]]:
    """Which tokens look far and which do not: a title, and the tokens with their mean reach."""
    return [
        (title, ", ".join(f"{_spelled(own.token)} {plain(own.mean)}" for own in named))
        for title, named in (
            ("Tokens that look furthest", study.far),
            ("Tokens that look least far", study.near),
        )
        if named
    ]


def as_markdown(study: Study) -> str:
    """All tables as Markdown."""
    lines = [
        "# What the reach learned",
        "",
        f"{study.task}: {study.tokens:,} tokens of {study.examples:,} dev examples. Reaches are "
        "tokens to each side, means over heads.",
    ]
    for table in study_tables(study):
        lines += ["", f"## {table.title}", "", _line(table.columns)]
        lines.append(_line(["---", *["--:"] * (len(table.columns) - 1)]))
        lines += [_line([name, *table.cells(values)]) for name, values in table.rows]
    for title, named in named_tokens(study):
        lines += ["", f"{title}: {named}."]
    return "\n".join(lines) + "\n"


def _rows(means: Means) -> list[tuple[str, Sequence[float | None]]]:
    """A row for each level that some token has."""
    return [
        (level, (means.tokens[n], means.mean[n], *(layer[n] for layer in means.layers)))
        for n, level in enumerate(means.levels)
        if means.tokens[n]
    ]


def _filled(values: Sequence[float], count: int) -> list[float | None]:
    return [*values, *[None] * (count - len(values))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spelled(token: str) -> str:
    """A token as it can stand in a line, a blank at its begin or a break among it."""
    return "“" + token.replace("\n", "⏎").replace("|", "¦").strip(" ") + "”"
