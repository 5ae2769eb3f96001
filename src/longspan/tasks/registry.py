"""Tasks by name."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..paths import expanded
from .birthplaces import Birthplaces
from .bytes import Bytes
from .classify import Classify
from .masked import Masked
from .recall import Recall
from .squad import Squad
from .tag import Tag
from .task import Task
from .token_files import hash_of
from .translate import Translate

__all__ = ["NAMES", "from_description", "kind_of_task", "make"]

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


def _module_of(path: Path) -> ModuleType:
    """A file as a module, which imports what lies beside it, as a script does."""
    # Dataclasses look for their module by its name, which must not be one that others import.
    name = f"_longspan_{path.stem}_{hash_of([str(path)])[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path[:] = before
    return module


def _own(name: str) -> type[Task]:
    """A class by the module, or the file, that it is in."""
    place, _, own = name.rpartition(":")
    if place.endswith(".py"):
        path = expanded(place)
        if not path.is_file():
            raise FileNotFoundError(f"task {name!r}: there is no file {path}")
        module = _module_of(path.resolve())
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"task {name!r}: there is no module {error.name}") from error
    found = getattr(module, own, None)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ValueError(f"task {name!r}: {place} has no class {own} that is a Task")
    return found
