"""What a plan would run and take, without running it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..recipes import Plan, Planned
from ..tasks.token_files import nothing_kept
from ..terminal import say
from ..training import StageCost, estimate
from .checking import check_plan
from .rows import flat
from .runner import results_of

__all__ = ["show_plan"]

CAPTION = (
    "Measured here with a few steps of every stage on its own data. Memory is that of weights, "
    "gradients and optimiser, counted, and of what a step takes at its peak, measured; Python and "
    "its libraries come on top. Time is that of steps and evaluations by one process; reading "
    "data, checkpoints and the report are not in it. Another load on this machine changes it."
)


def show_plan(
    console: Console, plan: Plan, folder: Path | None, records: Path | None = None
) -> None:
    """Prints configurations, and for every run its parameters, memory and time; writes nothing.

    Args:
        folder: of the runs, where those that have a result stay; None if all begin anew.
        records: of runs that are not made again.
    """
    # First all that may fail: a mistake is one line, and nothing before it.
    results = [] if folder is None else results_of(plan, folder, records)
    with nothing_kept():
        check_plan(plan, folder, records)
        measured = _measured(console, plan)
    say(console, plan.title, "bold")
    if plan.about:
        say(console, plan.about)
    _show_settings(console, plan)
    there = {planned.place for planned, _ in results}
    table = Table(box=box.SIMPLE, pad_edge=False, caption=CAPTION, caption_justify="left")
    table.add_column("run", overflow="fold")
    for name in ("steps", "parameters", "trained", "reach networks", "memory", "time"):
        table.add_column(name, justify="right")
    total, left_out = 0.0, False
    notes: dict[str, None] = {}
    for planned, costs in zip(plan.runs, measured, strict=True):
        seconds = _sum([own.seconds for own in costs])
        done = planned.place in there
        if not done:
            left_out |= seconds is None
            total += seconds or 0.0
        table.add_row(
            f"{planned.row}, seed {planned.config.seed}",
            f"{planned.config.steps:,}",
            _over_stages(costs, lambda own: f"{own.parameters:,}"),
            _over_stages(costs, lambda own: f"{own.trained:,}"),
            _over_stages(costs, lambda own: f"{own.reach:,}"),
            _memory(costs),
            "has a result" if done else _time(seconds),
        )
        notes |= {note: None for own in costs if (note := _note(planned, own))}
    table.add_section()
    more = " and more" if left_out else ""
    table.add_row("all that have no result yet", "", "", "", "", "", _time(total) + more)
    console.print(table)
    for note in notes:
        say(console, note)


def _measured(console: Console, plan: Plan) -> list[list[StageCost]]:
    """The costs of every run, stage by stage."""
    known: dict[str, list[StageCost]] = {}
    found = []
    quiet = not console.is_terminal
    with Progress(console=console, transient=True, disable=quiet) as bar:
        shown = bar.add_task("measuring", total=len(plan.runs))
        for planned in plan.runs:
            bar.update(shown, description=f"measuring {planned.row}")
            found.append(_cost(planned, known))
            bar.advance(shown)
    return found


def _cost(planned: Planned, known: dict[str, list[StageCost]]) -> list[StageCost]:
    """Runs that differ in nothing but the seed take the same."""
    same = replace(planned.config, seed=0, output="runs")
    key = json.dumps(same.as_dict(), sort_keys=True)
    if key not in known:
        known[key] = estimate(planned.config)
    return known[key]


def _note(planned: Planned, cost: StageCost) -> str:
    """What has to be said of a stage's figures."""
    stage = next(own for own in planned.config.stages if own.name == cost.name)
    where = f"{planned.row}, stage {cost.name}"
    whole = stage.batch * stage.accumulate
    if cost.why:
        return f"{where}: {cost.why}."
    if cost.examples < whole:
        return (
            f"{where}: a step takes long, and {cost.examples} of its {whole} examples were "
            "measured; time and memory are taken to grow with them."
        )
    return ""


def _over_stages(costs: list[StageCost], figure: Callable[[StageCost], str]) -> str:
    """One figure, or one for each stage where they differ."""
    found = [figure(own) for own in costs]
    return found[0] if len(set(found)) == 1 else " → ".join(found)


def _memory(costs: list[StageCost]) -> str:
    """The most of all stages."""
    if any(own.memory is None for own in costs):
        return f"over {_bytes(max(own.held for own in costs))}"
    return _bytes(max(own.memory or 0 for own in costs))


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _bytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size < 2**33 else f"{size / 2**30:,.1f} GiB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not measured"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else "under 1 s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def _show_settings(console: Console, plan: Plan) -> None:
    """Once what all runs have, then what is each row's own; by the names that `--set` takes."""
    rows = {row: _settings_of(plan, row) for row in plan.rows}
    first, *others = rows.values()
    shared = {
        key: value
        for key, value in first.items()
        if all(key in own and own[key] == value for own in others)
    }
    _show_values(console, "every run has" if others else "configuration", shared)
    for row, own in rows.items():
        if rest := {key: value for key, value in own.items() if key not in shared}:
            _show_values(console, row, rest)


def _settings_of(plan: Plan, row: str) -> dict[str, str]:
    runs = [planned.config for planned in plan.runs if planned.row == row]
    found = flat(runs[0])
    found["seed"] = ", ".join(str(config.seed) for config in runs)
    return found


def _show_values(console: Console, title: str, values: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", title_style="", box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in values.items():
        table.add_row(f"  {key}", value)
    console.print(table)
