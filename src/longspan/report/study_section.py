"""What a run's windows have learned, on the page: charts, and tables whose colours are reaches."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import COLOURS, Line, bar_chart, line_chart
from .markup import Markup, joined, tag
from .numbers import plain
from .setups import Setup
from .studies import Means, Study
from .study_tables import StudyTable, named_tokens, study_tables

__all__ = ["study_section"]

MOST_LINES = 12  # of layers, in one chart


def study_section(setup: Setup) -> Markup | None:
    """Charts and tables of the setup's first run that has a study."""
    run = setup.first_with(lambda run: run.study)
    if run is None or run.study is None:
        return None
    study = run.study
    read = f"{study.tokens:,} tokens of {study.examples:,} dev examples."
    name = tag("h3", tag("i", class_=f"key c{setup.place % COLOURS}"), setup.name)
    named = [
        tag("p", tag("strong", title), ": ", tokens, class_="note")
        for title, tokens in named_tokens(study)
    ]
    return joined(
        [
            name,
            tag("p", read, class_="note"),
            tag("div", joined(_figures(setup, study)), class_="pair"),
            *[_table(table) for table in study_tables(study)],
            *named,
        ]
    )


def _figures(setup: Setup, study: Study) -> list[Markup]:
    found = []
    for name, title in (
        ("kind", "Reach by kind of token"),
        ("distance", "Reach by tokens to the answer"),
    ):
        if name in study.by:
            bars = [
                (level, mean)
                for level, mean in zip(study.by[name].levels, study.by[name].mean, strict=True)
                if mean is not None
            ]
            told = "; ".join(f"{level}: {plain(mean)}" for level, mean in bars)
            chart = bar_chart(
                bars, x_label="reach, tokens", about=f"{title}. {told}", colour=setup.place
            )
            found.append(tag("figure", tag("h3", title), chart))
    if "position" in study.by:
        found.append(_position(setup, study, study.by["position"]))
    return found


def _position(setup: Setup, study: Study, means: Means) -> Markup:
    title = "Reach by position in the text"
    curves = [("all layers", means.mean)]
    if len(study.layers) > 1:
        curves += [
            (f"layer {layer.number + 1}", own)
            for layer, own in zip(study.layers[:MOST_LINES], means.layers, strict=False)
        ]
    lines = [
        Line(name, setup.place, _middles(own), faint=place > 0)
        for place, (name, own) in enumerate(curves)
    ]
    ends = [value for value in means.mean if value is not None]
    about = f"{title}. From {plain(min(ends))} to {plain(max(ends))} tokens" if ends else title
    chart = line_chart(
        lines, x_label="% of the text", y_label="reach, tokens", about=about, zero=True
    )
    return tag("figure", tag("h3", title), chart)


def _middles(values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Means at the middles of equal parts of a text, in percent."""
    return [
        (100 * (place + 0.5) / len(values), value)
        for place, value in enumerate(values)
        if value is not None
    ]


def _table(table: StudyTable) -> Markup:
    """A table whose cells are the stronger, the larger they are among all."""
    first = table.compared_from
    known = [v for _, values in table.rows for v in values[first:] if v is not None]
    low, high = (0.0, 1.0) if table.shares else (min(known, default=0), max(known, default=0))
    rows = []
    for name, values in table.rows:
        cells = [tag("th", name, scope="row")]
        for place, (value, shown) in enumerate(zip(values, table.cells(values), strict=True)):
            tint = None
            if place >= first and value is not None and high > low:
                tint = f"--t: {100 * max(value - low, 0) / (high - low):.0f}"
            cells.append(tag("td", shown, style=tint))
        rows.append(tag("tr", joined(cells)))
    head = tag("tr", joined(tag("th", name, scope="col") for name in table.columns))
    inner = tag("table", tag("thead", head), tag("tbody", joined(rows)), class_="study")
    return joined(
        [
            tag("h4", table.title),
            tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=table.title),
        ]
    )
