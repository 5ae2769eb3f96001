"""A GPU report on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .records import Entry, Figure, Report, Result, Taken
from .text import asked_of, number, verdict

__all__ = ["show"]


def show(report: Report, console: Console) -> None:
    """Prints where it ran, the figures beside their targets, and what every contender took."""
    at = report.setting
    versions = ", ".join(f"{name} {v or 'not installed'}" for name, v in at["versions"].items())
    console.print(Text(f"{at['card']}, {at['dtype']}; {versions}"), soft_wrap=True)
    console.print(_figures(report))
    console.print(_times(report))
    console.print(_needs(report))
    for result in report.results:
        if result.missing:
            console.print(Text(f"{result.row}: {result.missing}"), soft_wrap=True)
    met = [f.met for result in report.results for f in result.figures if f.met is not None]
    if at.get("quick"):
        last = "A quick look: inputs are too small for the targets, which are not judged."
    else:
        last = f"{sum(met)} of {len(met)} targets met."
    console.print(Text(last, style="bold"), soft_wrap=True)


def _figures(report: Report) -> Table:
    table = _new_table()
    table.add_column("row", no_wrap=True)
    table.add_column("figure", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("note", overflow="fold")
    for result in report.results:
        for place, figure in enumerate(result.figures):
            table.add_row(
                result.row if place == 0 else "",
                Text(figure.what),
                number(figure.value, figure.unit),
                Text(figure.unit),
                asked_of(figure),
                Text("") if report.setting.get("quick") else _met(figure),
                Text(figure.note),
                end_section=place + 1 == len(result.figures),
            )
    return table


def _met(figure: Figure) -> Text:
    said = verdict(figure)
    return Text(said, style="bold red" if said == "no" else "green")


def _times(report: Report) -> Table:
    table = _new_table("What every contender took, in µs: median (quartiles)")
    table.add_column("row", no_wrap=True)
    table.add_column("contender", overflow="fold")
    table.add_column("pass", no_wrap=True)
    for name in ("µs", "quartiles", "least", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    table.add_column("note", overflow="fold")
    for result in report.results:
        lines = [
            (entry.name, which, taken, entry.note or entry.missing)
            for entry in result.entries
            for which, taken in (*entry.passes.items(), *_nothing(entry))
        ]
        for place, (name, which, taken, note) in enumerate(lines):
            first = place == 0 or lines[place - 1][0] != name
            table.add_row(
                result.row if place == 0 else "",
                Text(name if first else ""),
                which,
                *_taken(taken),
                *_floor(result, which, taken),
                "" if taken is None else taken.how,
                Text(note if first else ""),
                end_section=place + 1 == len(lines),
            )
    return table


def _needs(report: Report) -> Table:
    table = _new_table("What the work needs, and the µs that takes at the card's rates")
    for name in ("row", "pass"):
        table.add_column(name, no_wrap=True)
    for name in ("pairs", "MB", "Gflop", "µs of bytes", "µs of flops"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in report.results:
        for place, (which, need) in enumerate(result.needs.items()):
            table.add_row(
                result.row if place == 0 else "",
                which,
                f"{result.pairs / 1e6:.1f} M" if place == 0 else "",
                f"{need.bytes / 1e6:.1f}",
                f"{need.flops / 1e9:.1f}",
                *("—" if t is None else f"{t:.1f}" for t in (need.bytes_time, need.flops_time)),
                end_section=place + 1 == len(result.needs),
            )
    return table


def _nothing(entry: Entry) -> list[tuple[str, None]]:
    """A line for a contender that did not run."""
    return [] if entry.passes else [("", None)]


def _taken(taken: Taken | None) -> tuple[str, str]:
    if taken is None:
        return "—", ""
    if taken.how == "clock":
        return f"{taken.median / 1e6:.2f} s", ""
    return f"{taken.median:.1f}", f"{taken.lower:.1f}–{taken.upper:.1f}"


def _floor(result: Result, which: str, taken: Taken | None) -> tuple[str, str]:
    """The least time a pass needs at the card's rates, and its share of the time taken."""
    need = result.needs.get(which)
    if need is None or need.time is None or taken is None:
        return "", ""
    limit = "bytes" if need.time == need.bytes_time else "flops"
    return f"{need.time:.1f} {limit}", f"{need.time / taken.median:.0%}"


def _new_table(title: str | None = None) -> Table:
    return Table(title=title, box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
