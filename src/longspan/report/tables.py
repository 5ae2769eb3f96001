"""The table of results: a row a setup, with what its seeds gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .charts import COLOURS
from .markup import Markup, joined, tag
from .numbers import MISSING, compact, duration, memory, with_spread
from .setups import Setup, Spread, lower_is_better, stands_apart

__all__ = ["results_table", "verdict"]


class Column(NamedTuple):
    """A column: a number's name in `result.json`, its heading, its form, and which end is good."""

    name: str
    heading: str
    shown: Callable[[float | None], str]
    lower: bool | None


COLUMNS = (
    Column("pairs", "pairs", compact, True),
    Column("tokens_per_second", "tokens/s", compact, False),
    Column("peak_memory", "peak memory", memory, True),
    Column("seconds", "time", duration, True),
    # Neither more nor fewer parameters are the better ones.
    Column("parameters", "parameters", compact, None),
)


def results_table(setups: Sequence[Setup]) -> Markup:
    """The results of one task."""
    metric = setups[0].metric
    lower = lower_is_better(setups)
    columns = [Column(metric, _metric_heading(metric, lower), with_spread_of_one, lower), *COLUMNS]
    head = [tag("th", "setup", scope="col"), tag("th", "seeds", scope="col")]
    head += [tag("th", column.heading, scope="col") for column in columns]
    spreads = [[setup.spread(column.name) for setup in setups] for column in columns]
    best = [
        None if column.lower is None else stands_apart(values, lower=column.lower)
        for column, values in zip(columns, spreads, strict=True)
    ]
    rows = []
    for row, setup in enumerate(setups):
        cells = [
            tag("th", tag("i", class_=f"key c{setup.place % COLOURS}"), setup.name, scope="row"),
            tag("td", _seeds(setup)),
        ]
        for place, column in enumerate(columns):
            text = _cell(column, spreads[place][row])
            cells.append(tag("td", tag("strong", text) if best[place] == row else text))
        rows.append(tag("tr", joined(cells)))
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", joined(head))),
            tag("tbody", joined(rows)),
            class_="results",
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=f"Results of {setups[0].task or 'the runs'}",
    )


def verdict(setups: Sequence[Setup]) -> str:
    """What the table says, in a sentence or two."""
    metric, lower = setups[0].metric, lower_is_better(setups)
    known = [(setup, s) for setup in setups if (s := setup.spread(metric)) is not None]
    if not known:
        return "No run has a result yet."
    known.sort(key=lambda item: item[1].mean if lower else -item[1].mean)
    (top, best), rest = known[0], known[1:]
    said = f"{top.name}: {metric} {with_spread(best.mean, best.deviation)}"
    if not rest:
        return f"{said}."
    second, other = rest[0]
    said = f"Best mean: {said}; next: {second.name}, {with_spread(other.mean, other.deviation)}."
    if any(spread.deviation is None for _, spread in known):
        return (
            f"{said} A setup with a single seed may owe its place to chance: more seeds would tell."
        )
    if stands_apart([setup.spread(metric) for setup in setups], lower=lower) is None:
        return f"{said} The difference is within the spread of the seeds."
    return f"{said} The lead over every other is larger than both deviations together."


def with_spread_of_one(value: float | None) -> str:
    """A mean that stands alone."""
    return with_spread(value, None)


def _metric_heading(metric: str, lower: bool) -> str:
    return f"{metric} ({'lower' if lower else 'higher'} is better)" if metric else "metric"


def _seeds(setup: Setup) -> str:
    ended = setup.spread(setup.metric)
    have, all_of = ended.seeds if ended else 0, len(setup.runs)
    return str(all_of) if have == all_of else f"{have} of {all_of}"


def _cell(column: Column, spread: Spread | None) -> str:
    if spread is None:
        return MISSING
    if column.shown is with_spread_of_one:
        return with_spread(spread.mean, spread.deviation)
    text = column.shown(spread.mean)
    if not spread.deviation or not spread.mean:
        return text
    share = 100 * spread.deviation / abs(spread.mean)
    # In the units of the mean the two would need two units; a share needs none.
    return text if share < 0.5 else f"{text} ± {share:.0f} %"
