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
from ..training.run import check_folder
from .records import Done, keep, kept, path_of

__all__ = ["finished", "moved_aside", "results_of", "run_plan", "take_up"]

RESULT = "result.json"


def run_plan(
    plan: Plan, folder: Path, *, records: Path | None = None, say: Callable[[str], None]
) -> list[Done]:
    """Takes up every run that has no result yet, in the plan's order; one that was stopped goes on
    where its last checkpoint is.

    Args:
        folder: of all the runs.
        records: a folder of records: runs that have one are not made again, and the others get one
            when they end.
        say: told what happens.
    """
    found: list[Done] = []
    for number, planned in enumerate(plan.runs, 1):
        done = finished(planned, folder, records)
        if done is None:
            say(f"{number} of {len(plan.runs)}: {planned.row}, seed {planned.config.seed}")
            done = take_up(plan, planned, folder, records)
        found.append(done)
    return found


def take_up(plan: Plan, planned: Planned, folder: Path, records: Path | None) -> Done:
    """Makes one run, or goes on with it."""
    config = planned.inside(folder)
    result = train(config, resume=True)
    if records is not None and first_process():
        keep(records, plan, planned, config.folder)
    return planned, result


def finished(planned: Planned, folder: Path, records: Path | None) -> Done | None:
    """What a run has come to, if it has ended, here or where its record is from."""
    if records is not None:
        return kept(records, planned)
    result = _result(folder / planned.place)
    if result is None:
        return None
    check_folder(planned.inside(folder), resume=True)
    return planned, result


def moved_aside(plan: Plan, folder: Path, records: Path | None = None) -> list[tuple[Path, Path]]:
    """Makes room for a plan's runs: what is there, and the records of it, goes into a folder
    `before` beside them, and is kept.

    Returns:
        What was moved, and where to. All processes call it, and the first one moves.
    """
    accelerator_for()  # Processes that were started together know one another from here on.
    found = []
    if first_process():
        for planned in plan.runs:
            places = [folder / planned.place]
            if records is not None:
                places.append(path_of(records, planned))
            for was in places:
                if was.exists():
                    now = _free(was.parent / "before", was)
                    now.parent.mkdir(exist_ok=True)
                    was.rename(now)
                    found.append((was, now))
    wait()
    return found


def _free(folder: Path, was: Path) -> Path:
    """A path that is not taken."""
    number = 1
    while (found := folder / f"{was.stem}-{number}{was.suffix}").exists():
        number += 1
    return found


def results_of(plan: Plan, folder: Path) -> list[Done]:
    """The runs of a plan that have a result."""
    done = [finished(planned, folder, None) for planned in plan.runs]
    return [one for one in done if one is not None]


def _result(run: Path) -> dict[str, Any] | None:
    path = run / RESULT
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
