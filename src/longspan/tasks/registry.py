"""Tasks by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .birthplaces import Birthplaces
from .bytes import Bytes
from .classify import Classify
from .masked import Masked
from .recall import Recall
from .squad import Squad
from .tag import Tag
from .task import Task
from .translate import Translate

__all__ = ["NAMES", "from_description", "kind_of_task", "make"]

KINDS: dict[str, type[Task]] = {
    kind.name: kind
    for kind in (Birthplaces, Bytes, Classify, Masked, Recall, Squad, Tag, Translate)
}

NAMES = tuple(sorted(KINDS))


def make(
    name: str,
    data: str | Path | None = None,
    *,
    cache: str | Path | None = None,
    **settings: Any,
) -> Task:
    """The task of a name.

    Args:
        name: one of `NAMES`.
        data: the file or folder to read; None for the sample that ships with longspan, or for a
            task that is generated.
        cache: the folder for what is made from the data once; `~/.cache/longspan` by default.
        settings: those of the task's class.
    """
    kind: Any = kind_of_task(name)
    known = [n for n in inspect.signature(kind).parameters if n not in ("data", "cache")]
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"{name} has no setting {setting!r}{meant} Its settings are {', '.join(known)}"
            )
    return kind(data, cache=cache, **settings)


def from_description(description: Mapping[str, Any], *, cache: str | Path | None = None) -> Task:
    """The task that `Task.describe` described."""
    return kind_of_task(description["name"]).from_description(description, cache=cache)


def kind_of_task(name: str) -> type[Task]:
    """The class of a task."""
    if name not in KINDS:
        near = difflib.get_close_matches(name, NAMES, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"there is no task {name!r}{meant}: choose one of {', '.join(NAMES)}")
    return KINDS[name]
