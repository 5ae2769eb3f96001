"""A report on a terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .records import Figure, Outcome, Report, Sample
from .text import number, target

__all__ = ["figures_table", "outcomes_table", "show", "where"]


def show(report: Report, console: Console) -> None:
    """Prints where it ran, the figures beside their targets, and what every contender took."""
    console.print(Text(where(report.setting)), soft_wrap=True)
    console.print(figures_table(report))
    console.print(outcomes_table(report))
    met = [figure.met for figure in report.figures if figure.met is not None]
    if report.setting.get("quick"):
        last = "A quick look: inputs are too small for the targets, which are not judged."
    else:
        last = f"{sum(met)} of {len(met)} targets met."
    console.print(Text(last, style="bold"), soft_wrap=True)


def where(at: dict[str, Any]) -> str:
    """Machine, versions and memory, as `machine.setting` found them."""
    versions = ", ".join(f"{name} {v or 'not installed'}" for name, v in at["versions"].items())
    kept = at["allocator"]
    memory = (
        "freed memory kept (" + " ".join(f"{name}={value}" for name, value in kept.items()) + ")"
        if kept
        else "the system's own allocator settings"
    )
    return (
        f"{at['processor']}, {', '.join(at['instructions']) or 'nothing compiled'}, "
        f"threads: {at['threads']}, {at['clock']}, "
        f"load before and after: {at['load before']}, {at.get('load after')}\n"
        f"torch {at['torch']}, {versions}\n"
        f"{memory}; float32; medians of calls that take turns"
    )


def figures_table(report: Report) -> Table:
    """The figures beside their targets."""
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("figure", overflow="fold")
    for name in ("forward", "both"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("note", overflow="fold")
    quick = report.setting.get("quick")
    for place, figure in enumerate(report.figures):
        following = report.figures[place + 1 : place + 2]
        table.add_row(
            Text(figure.what),
            number(figure.values[0], figure.unit),
            number(figure.values[1], figure.unit),
            Text(figure.unit),
            target(figure),
            Text("") if quick else _met(figure),
            Text(figure.note),
            end_section=bool(following) and following[0].problem != figure.problem,
        )
    return table


def _met(figure: Figure) -> Text:
    if figure.met is None:
        return Text("")
    return Text("yes", style="green") if figure.met else Text("no", style="bold red")


def outcomes_table(report: Report) -> Table:
    """What every contender took."""
    table = Table(
        title="What every contender took",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("problem", no_wrap=True)
    table.add_column("contender", overflow="fold")
    for name in ("pairs", "tiles", "forward", "both", "rounds"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, outcome in enumerate(report.outcomes):
        following = report.outcomes[place + 1 : place + 2]
        table.add_row(
            outcome.problem,
            Text(outcome.name),
            f"{outcome.pairs / 1e6:.2f} M" if outcome.pairs else "",
            f"{outcome.tiles:,}" if outcome.tiles else "",
            *_taken(outcome),
            end_section=bool(following) and following[0].problem != outcome.problem,
        )
    return table


def _taken(outcome: Outcome) -> tuple[Text, str, str]:
    if outcome.missing:
        return Text(outcome.missing), "", ""
    if outcome.peak is not None:
        return Text(""), f"{outcome.peak / 2**20:.0f} MiB", ""
    timed = outcome.forward or outcome.both
    rounds = str(timed.rounds) if timed else ""
    return Text(_seconds(outcome.forward)), _seconds(outcome.both), rounds


def _seconds(sample: Sample | None) -> str:
    if sample is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if sample.median >= 10 * size or unit == "ms":
            return f"{sample.median / size:.4g} {unit}"
    return ""
