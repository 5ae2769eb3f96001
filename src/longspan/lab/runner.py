"""Makes the runs of a plan that are not there yet."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ..recipes import Plan, Planned
from ..terminal import words_of
from ..training import train
from ..training.accelerating import accelerator_for
from ..training.folder import TakenError, check_folder, claimed
from ..training.folder import finished as result_in
from ..training.processes import (
    first_process,
    gathered,
    process_count,
    started_together,
    wait,
)
from ..training.starting import check_start
from .records import Done, keep, kept, path_of
from .rows import note

__all__ = [
    "Failed",
    "Made",
    "cause_of",
    "finished",
    "moved_aside",
    "results_of",
    "run_plan",
    "take_up",
]


class Failed(NamedTuple):
    """A run that did not come to an end, and why."""

    planned: Planned
    why: str

    def __str__(self) -> str:
        return f"{self.planned.row}, seed {self.planned.config.seed}: {self.why}"


class Made(NamedTuple):
    """What a plan has come to."""

    done: list[Done]
    failed: list[Failed]


def run_plan(
    plan: Plan, folder: Path, *, records: Path | None = None, say: Callable[[str], None]
) -> Made:
    """Takes up every run that has no result yet, in the plan's order; one that was stopped goes on
    where its last checkpoint is. One that fails is not the end of the others, unless several
    processes make it, which wait for one another, or the disk is full.

    Args:
        folder: of all the runs.
        records: a folder of records: runs that have one are not made again, and the others get one
            when they end.
        say: told what happens.
    """
    if started_together():
        accelerator_for()  # They know one another from here on.
    done: dict[int, Done] = {}
    failed: dict[int, Failed] = {}
    left = dict(enumerate(plan.runs, 1))
    # What another process makes is looked at again when all else is made.
    for again in (False, True):
        taken = {}
        for number, planned in left.items():
            try:
                found = _finished_for_all(planned, folder, records)
                if found is None:
                    say(f"{number} of {len(plan.runs)}: {planned.row}, seed {planned.config.seed}")
                    found = take_up(plan, planned, folder, records)
                done[number] = found
            except Exception as error:
                if process_count() > 1:
                    raise
                if isinstance(error, TakenError) and not again:
                    taken[number] = planned
                    continue
                failed[number] = Failed(planned, cause_of(error))
                if len(plan.runs) > 1:
                    say(f"failed: {failed[number]}")
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    taken = {}
                    break
        left = taken
    return Made([done[n] for n in sorted(done)], [failed[n] for n in sorted(failed)])


def _finished_for_all(planned: Planned, folder: Path, records: Path | None) -> Done | None:
    """As the first of several processes finds it: another command may end the run before the next
    one looks, and they would wait for one another.
    """
    if process_count() == 1:
        return finished(planned, folder, records)
    result, wrong = None, ""
    if first_process():
        try:
            done = finished(planned, folder, records)
            result = None if done is None else done[1]
        except (OSError, ValueError) as error:
            wrong = words_of(error)
    (result, wrong), *_ = gathered([result, wrong], accelerator_for().device)
    if wrong:
        raise ValueError(wrong)
    return None if result is None else (planned, result)


def cause_of(error: Exception) -> str:
    """Why a run failed, in one line; of what is nobody's mistake, the whole is printed, too."""
    if isinstance(error, ValueError | OSError | ImportError):
        return words_of(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {words_of(error)}"


def take_up(plan: Plan, planned: Planned, folder: Path, records: Path | None) -> Done:
    """Makes one run, or goes on with it."""
    config = planned.inside(folder)
    if first_process():
        # Before it is trained: one that is stopped has its row.
        config.folder.mkdir(parents=True, exist_ok=True)
        note(plan, planned, config.folder)
    result = train(config, resume=True)
    if first_process() and records is not None:
        keep(records, plan, planned, config.folder)
    return planned, result


def finished(planned: Planned, folder: Path, records: Path | None) -> Done | None:
    """What a run has come to, if it has ended, here or where its record is from."""
    if records is not None:
        return kept(records, planned)
    result = result_in(folder / planned.place)
    if result is None:
        return None
    check_folder(planned.inside(folder), resume=True)
    check_start(planned.inside(folder))
    return planned, result


def moved_aside(plan: Plan, folder: Path, records: Path | None = None) -> list[tuple[Path, Path]]:
    """Makes room for a plan's runs: what is there, and the records of it, goes into a folder
    `before` beside them, and is kept.

    Returns:
        What was moved, and where to. All processes call it, and the first one moves.

    Raises:
        TakenError: another process makes one of them; nothing has changed.
    """
    if started_together():
        accelerator_for()  # They know one another from here on.
    found = []
    if first_process():
        with ExitStack() as held:
            for planned in plan.runs:
                if (folder / planned.place).exists():
                    held.enter_context(claimed(folder / planned.place))
            for planned in plan.runs:
                places = [folder / planned.place]
                if records is not None:
                    places.append(path_of(records, planned))
                found += [(was, _moved(was)) for was in places if was.exists()]
    wait()
    return found


def _moved(was: Path) -> Path:
    """Into the folder `before`, under a name that is not taken."""
    folder, number = was.parent / "before", 1
    while (now := folder / f"{was.stem}-{number}{was.suffix}").exists():
        number += 1
    folder.mkdir(exist_ok=True)
    was.rename(now)
    return now


def results_of(plan: Plan, folder: Path, records: Path | None = None) -> list[Done]:
    """The runs of a plan that have a result, here or where their records are from."""
    done = [finished(planned, folder, records) for planned in plan.runs]
    return [one for one in done if one is not None]
