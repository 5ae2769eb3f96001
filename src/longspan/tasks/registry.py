"""Tasks by name."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..modules import module_of
from ..paths import expanded
from .birthplaces import Birthplaces
from .bytes import Bytes
from .classify import Classify
from .masked import Masked
from .recall import Recall
from .squad import Squad
from .tag import Tag
from .task import Task
from .translate import Translate

__all__ = ["NAMES", "from_description", "kind_of_task", "make", "paths_of"]

KINDS: dict[str, type[Task]] = {
    kind.name: kind
    for kind in (Birthplaces, Bytes, Classify, Masked, Recall, Squad, Tag, Translate)
}

NAMES = tuple(sorted(KINDS))


def make(
    name: str,
    data: str | Path | Sequence[str | Path] | None = None,
    *,
    cache: str | Path | None = None,
    **settings: Any,
) -> Task:
    """The task of a name.

    Args:
        name: one of `NAMES`; or that of a task of one's own, as `package.module:Class` or
            `path/to/file.py:Class`.
        data: the file or folder to read, or a list of files for a task that takes several; None
            for the sample that ships with longspan, or for a task that is generated.
        cache: the folder for what is made from the data once; `~/.cache/longspan` by default.
        settings: those of the task's class.
    """
    kind: Any = kind_of_task(name)
    known = [n for n in inspect.signature(kind).parameters if n not in ("data", "cache")]
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(
                f"{name} has no setting {setting!r}{meant}; it has {', '.join(known) or 'none'}"
            )
    task: Task = kind(data, cache=cache, **settings)
    task.called = name
    return task


def from_description(description: Mapping[str, Any], *, cache: str | Path | None = None) -> Task:
    """The task that `Task.describe` described."""
    name = description["name"]
    task = kind_of_task(name).from_description(description, cache=cache)
    task.called = name
    return task


def kind_of_task(name: str) -> type[Task]:
    """The class of a task."""
    if name in KINDS:
        return KINDS[name]
    if ":" in name:
        return _own(name)
    near = difflib.get_close_matches(name, NAMES, 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(
        f"there is no task {name!r}{meant}: choose one of {', '.join(NAMES)}, or name a class of "
        "your own as package.module:Class or file.py:Class"
    )


def paths_of(name: str) -> tuple[str, ...]:
    """The settings of a task that are paths; those of any task, for one whose code is not here."""
    try:
        return kind_of_task(name).paths
    except (OSError, ValueError, ImportError):
        return Task.paths


def _own(name: str) -> type[Task]:
    """A class by the module, or the file, that it is in."""
    place, _, own = name.rpartition(":")
    if place.endswith(".py"):
        path = expanded(place)
        if not path.is_file():
            raise FileNotFoundError(f"task {name!r}: there is no file {path}")
        module: Any = module_of(path)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"task {name!r}: there is no module {error.name}") from error
    found = getattr(module, own, None)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ValueError(f"task {name!r}: {place} has no class {own} that is a Task")
    return found
