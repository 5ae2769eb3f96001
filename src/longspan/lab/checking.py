"""What can be known to be wrong with a plan before anything of it is trained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..recipes import Plan
from ..tasks import Task
from ..training import RunConfig, build
from ..training.building import tasks_of
from ..training.folder import check_data
from ..training.run import check_reach_sources
from .records import check_record

__all__ = ["check_plan", "make_places", "settings_said"]


def check_plan(plan: Plan, folder: Path | None, records: Path | None) -> None:
    """Makes the tasks and the models of every row once, so that what is wrong with the data or the
    settings of any is said before one is trained; and looks whether what is there of runs is of
    the same data.

    Args:
        folder: of the runs that are to go on; None if all begin anew.
        records: those of runs that are not made again.
    """
    made: dict[str, tuple[list[Task], list[dict[str, Any]]]] = {}
    rows = set()
    for planned in plan.runs:
        with settings_said():
            asked = _asked(planned.config)
            if asked not in made:
                found = tasks_of(planned.config, None)
                made[asked] = found, [own.describe() for own in found]
            tasks, described = made[asked]
            if planned.row not in rows:
                rows.add(planned.row)
                check_reach_sources(planned.config)
                for stage, task in zip(planned.config.stages, tasks, strict=True):
                    with _room_said(planned.row):
                        build(planned.config, stage, task, tasks)
        if folder is not None:
            check_data(folder / planned.place, described)
            if records is not None:
                check_record(records, planned, described)


def make_places(*folders: Path) -> None:
    """Makes folders for what is to be written, so that it is said before one is trained if that
    cannot be.
    """
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(f"{folder} is a file, where a folder is needed") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} is a folder in which nothing can be written")


def _asked(config: RunConfig) -> str:
    """What the tasks of a run follow from."""
    return json.dumps([config.task, *([own.task, own.length] for own in config.stages)])


@contextmanager
def _room_said(row: str) -> Iterator[None]:
    """A model that is too large for the machine is a mistake like others."""
    try:
        yield
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise ValueError(f"{row}: its model does not fit into the memory ({error})") from error


@contextmanager
def settings_said() -> Iterator[None]:
    """A setting of the wrong type is a mistake like others."""
    try:
        yield
    except TypeError as error:
        raise ValueError(str(error)) from error
