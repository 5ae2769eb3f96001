"""The table of runs: on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from .comparing import Compared, compared
from .records import Done

__all__ = ["as_markdown", "save", "show"]

COLUMNS = ("better than the first", "pairs", "tokens/s", "memory", "seconds")


def show(console: Console, title: str, done: Sequence[Done]) -> None:
    """Prints the rows."""
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for column in (_metric(done), *COLUMNS):
        table.add_column(column, justify="right")
    for row in _rows(done):
        table.add_row(*_cells(row))
    console.print(table)


def as_markdown(done: Sequence[Done]) -> str:
    """The rows as a table of Markdown."""
    names = ["", _metric(done), *COLUMNS]
    lines = [names, ["---", *["--:"] * (len(names) - 1)], *map(_cells, _rows(done))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def save(done: Sequence[Done], path: Path) -> Path:
    """Writes the rows as Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(as_markdown(done), encoding="utf-8")
    return aside.replace(path)


def _metric(done: Sequence[Done]) -> str:
    return str(done[0][1]["metric"])


def _rows(done: Sequence[Done]) -> list[Compared]:
    return compared(done, lower_is_better=bool(done[0][1].get("lower_is_better")))


def _cells(row: Compared) -> list[str]:
    return [
        row.row,
        str(row.quality),
        "" if row.better is None else f"{row.better:.0%}",
        "—" if row.pairs is None else f"{row.pairs.mean:,.0f}",
        "—" if row.tokens_per_second is None else f"{row.tokens_per_second.mean:,.0f}",
        "—" if row.peak_memory is None else f"{row.peak_memory / 2**20:,.0f} MiB",
        f"{row.seconds:,.0f}",
    ]
