"""Makes the runs of a plan that are not there yet."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..recipes import Plan, Planned
from ..training import train
from ..training.accelerating import accelerator_for
from ..training.processes import first_process, wait

__all__ = ["Done", "moved_aside", "results_of", "run_plan"]

RESULT = "result.json"

Done = tuple[Planned, dict[str, Any]]


def run_plan(plan: Plan, folder: Path, *, say: Callable[[str], None]) -> list[Done]:
    """Takes up every run that has no result yet, in the plan's order; one that was stopped goes on
    where its last checkpoint is.

    Args:
        folder: of all the runs.
        say: told what happens.
    """
    found: list[Done] = []
    for number, planned in enumerate(plan.runs, 1):
        config = planned.inside(folder)
        result = _result(config.folder)
        if result is None:
            say(f"{number} of {len(plan.runs)}: {planned.row}, seed {config.seed}")
            result = train(config, resume=True)
        found.append((planned, result))
    return found


def moved_aside(plan: Plan, folder: Path) -> list[tuple[Path, Path]]:
    """Makes room for a plan's runs: what is there goes into the folder `before`, and is kept.

    Returns:
        What was moved, and where to. All processes call it, and the first one moves.
    """
    accelerator_for()  # Processes that were started together know one another from here on.
    found = []
    if first_process():
        for planned in plan.runs:
            was = folder / planned.place
            if was.is_dir():
                now = _free(folder / "before", planned.place)
                now.parent.mkdir(exist_ok=True)
                was.rename(now)
                found.append((was, now))
    wait()
    return found


def _free(folder: Path, name: str) -> Path:
    """A path that is not taken."""
    number = 1
    while (folder / f"{name}-{number}").exists():
        number += 1
    return folder / f"{name}-{number}"


def results_of(plan: Plan, folder: Path) -> list[Done]:
    """The runs of a plan that have a result."""
    done = [(planned, _result(folder / planned.place)) for planned in plan.runs]
    return [(planned, result) for planned, result in done if result is not None]


def _result(run: Path) -> dict[str, Any] | None:
    path = run / RESULT
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
