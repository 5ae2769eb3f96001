"""A run's folder: who makes the run, what came of it, and whether it may go on as it is asked."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from ..tasks.reading import hash_now, read_object
from .config import RunConfig

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:
    # Locks of files are not everywhere; there nobody is kept from a folder.
    fcntl = None

__all__ = [
    "TakenError",
    "check_data",
    "check_folder",
    "claimed",
    "described_in",
    "finished",
    "last_stage",
    "started_from",
]

CURE = "put it back, begin anew with --fresh, or name another folder"


class TakenError(ValueError):
    """Another process makes the run."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Nobody else makes the run of a folder within. A claim is the lock of a file beside it, and
    goes with the process, however that ends.

    Raises:
        TakenError: somebody has it.
    """
    place = folder.resolve()
    path = place.with_name(f".{place.name}.claim")
    file = _locked(path, folder)
    try:
        yield
    finally:
        if file is not None:
            # While it is locked: who has opened it meanwhile finds that it is gone, and asks again.
            path.unlink(missing_ok=True)
            file.close()


def _locked(path: Path, folder: Path) -> IO[bytes] | None:
    """The file, locked; None where there are no locks, or where nothing can be written: that is
    said by who writes.
    """
    while fcntl is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab+", buffering=0)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TakenError(
                f"{folder} is being made by another process{_owner(file)}: wait until it has "
                "ended, or name another folder"
            ) from None
        except OSError:
            file.close()
            return None
        if _is_at(file, path):
            # On a full disk it is nobody's name, and locked.
            with suppress(OSError):
                file.truncate(0)
                file.write(f"{os.getpid()} on {socket.gethostname()}".encode())
            return file
        file.close()
    return None


def _owner(file: IO[bytes]) -> str:
    """Who has locked a file, in brackets, as far as it tells."""
    with file:
        file.seek(0)
        who = file.read().decode(errors="replace")
    return f" ({who})" if who else ""


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether a file that was opened is still the one of its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def finished(folder: Path) -> dict[str, Any] | None:
    """The result of the run in a folder, if there is one."""
    path = folder / "result.json"
    found = read_object(path) if path.is_file() else None
    if found is not None and not _is_result(found):
        raise ValueError(f"{path} is no result of a run: remove it, and the run goes on")
    return found


def _is_result(found: dict[str, Any]) -> bool:
    """Whether it has what tables tell of a run."""
    metrics = found.get("metrics")
    return (
        isinstance(metrics, dict)
        and found.get("metric") in metrics
        and isinstance(found.get("seconds"), int | float)
        and isinstance(found.get("parameters"), int)
    )


def check_folder(config: RunConfig, resume: bool) -> None:
    """Raises when the folder has another run, one that is not to go on, or one of other data; and
    when it is none.
    """
    if config.folder.exists() and not config.folder.is_dir():
        raise NotADirectoryError(f"{config.folder} is a file, where a run needs a folder")
    path = config.folder / "config.json"
    if not path.is_file():
        return
    if not resume:
        raise ValueError(
            f"{config.folder} has a run already: go on with resume=True, or name another folder"
        )
    before, now = RunConfig.read(path).computes(), config.computes()
    for key in now:
        if before[key] != now[key]:
            raise ValueError(
                f"{config.folder} has a run with another {key}: {before[key]!r}, now "
                f"{now[key]!r}; resume it as it was, or name another folder"
            )
    for was in described_in(config.folder):
        for file in _files_of(was):
            path = Path(file["path"])
            # One that is gone is said where it is needed.
            if path.is_file() and hash_now(path) != file["sha256"]:
                raise _other_data(config.folder, was, f"{path} is another")


def check_data(folder: Path, tasks: Sequence[dict[str, Any]]) -> None:
    """Raises when the tasks of a folder's run, as they are described, are not what they were."""
    for was, now in zip(described_in(folder), json.loads(json.dumps(tasks)), strict=False):
        if what := _changed(was, now):
            raise _other_data(folder, was, what)


def _other_data(folder: Path, task: dict[str, Any], what: str) -> ValueError:
    return ValueError(
        f"{folder}: the data of {task['name']} changed since the run began: {what}; {CURE}"
    )


def described_in(folder: Path) -> list[dict[str, Any]]:
    """The tasks that the run in a folder was begun with."""
    tasks: list[dict[str, Any]] = _described(folder).get("tasks", [])
    return tasks


def started_from(folder: Path) -> str | None:
    """The hash of the weights that the run in a folder was begun with."""
    found: str | None = (_described(folder).get("start") or {}).get("sha256")
    return found


def _described(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        return {}
    try:
        described = read_object(path).get("described")
    except ValueError:
        # Who goes on with that run is told.
        return {}
    return described if isinstance(described, dict) else {}


def _changed(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What is another, in words. A later version may say more of a task: that is no change."""
    if what := _changed_files(was["files"], now["files"]):
        return what
    for name, value in was["settings"].items():
        if now["settings"].get(name) != value:
            return f"{name} was {value!r}, and is {now['settings'].get(name)!r}"
    tokenizer, here = was.get("tokenizer"), now.get("tokenizer")
    if tokenizer and here and tokenizer["sha256"] != here["sha256"]:
        return f"{here['path']} is another"
    if "tokens" in was and now.get("tokens") != was["tokens"]:
        return "its tokenizer has other tokens"
    return ""


def _files_of(task: dict[str, Any]) -> list[dict[str, Any]]:
    """What a task has read: its data, and its tokenizer if one was named."""
    return [*task["files"], *([task["tokenizer"]] if "tokenizer" in task else [])]


def _changed_files(was: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> str:
    """By content: what ships with longspan lies elsewhere in another installation."""
    if [own["sha256"] for own in was] == [own["sha256"] for own in now]:
        return ""
    before, here = ([(Path(own["path"]).name, own["sha256"]) for own in of] for of in (was, now))
    names, new, gone = (
        dict(before),
        Counter(here) - Counter(before),
        Counter(before) - Counter(here),
    )
    for own, told in zip(now, here, strict=True):
        if told in new:
            return f"{own['path']} is {'another' if told[0] in names else 'read now, and was not'}"
    for own, told in zip(was, before, strict=True):
        if told in gone:
            return f"{own['path']} was read, and is not now"
    return "its files are in another order"


def last_stage(run: Path) -> Path:
    """The folder of the model that the last stage of a run has left."""
    names = [stage.name for stage in RunConfig.read(run).stages]
    there = [run / "stages" / name for name in names if (run / "stages" / name).is_dir()]
    if not there:
        raise FileNotFoundError(f"{run} has no finished stage yet")
    return there[-1]
