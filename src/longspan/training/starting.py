"""What a run starts from: the stage of another run whose weights it takes, and which those are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..paths import expanded
from ..tasks import Task
from ..tasks.reading import hash_now, read_object
from ..tasks.token_files import hash_of
from .config import RunConfig
from .folder import CURE, finished, last_stage, started_from

__all__ = ["check_start", "check_tokens", "described_start", "is_run", "stage_of"]

# What files of weights end in, of transformers' and ours.
WEIGHTS = (".safetensors", ".bin")


def is_run(start: str | None) -> bool:
    """Whether weights to start from are those of a run, or of one of its stages, and not of
    transformers.
    """
    if start is None:
        return False
    path = expanded(start)
    return _is_stage(path) or (path / "stages").is_dir() or "stages" in _told(path)


def stage_of(start: str) -> Path:
    """The folder of the model that a run leaves to others: that of its last stage, or the one that
    is named.
    """
    path = expanded(start)
    if _is_stage(path):
        return path
    if finished(path) is None:
        raise ValueError(
            f"start: {path} has not ended, and its last stage would be another when it has: finish "
            f"it first, or name a stage, {path / 'stages'}/…"
        )
    return last_stage(path)


def _is_stage(path: Path) -> bool:
    return path.absolute().parent.name == "stages" and (path / "model.json").is_file()


def _told(path: Path) -> dict[str, Any]:
    """What a folder's config.json says, of whatever that may be."""
    config = path / "config.json"
    return read_object(config) if config.is_file() else {}


def described_start(start: str | None) -> dict[str, Any] | None:
    """Which weights a run starts from, by their contents; None where there are no files of them,
    such as a model that has a name alone.
    """
    if start is None:
        return None
    folder = stage_of(start) if is_run(start) else expanded(start)
    files = sorted(own for own in folder.glob("*") if own.suffix in WEIGHTS)
    if not files:
        return None
    return {"folder": folder.name, "sha256": hash_of(hash_now(own) for own in files)}


def check_start(config: RunConfig) -> None:
    """Raises when the weights that the run in a folder was begun with are others now. Such as are
    gone are said where they are needed.
    """
    was = started_from(config.folder)
    now = None if was is None else described_start(config.start)
    if now is not None and now["sha256"] != was:
        raise ValueError(
            f"{config.folder}: the weights in {config.start} changed since the run began; {CURE}"
        )


def check_tokens(start: str, tasks: Sequence[Task]) -> None:
    """Raises unless tokens are numbered as the run that is started from has learned them."""
    stage = stage_of(start)
    run = stage.absolute().parent.parent
    names = [own.name for own in RunConfig.read(run).stages]
    described = _told(run).get("described", {}).get("tasks", [])
    if len(described) != len(names):
        return
    known = described[names.index(stage.name)].get("tokens")
    for task in tasks:
        tokens = task.describe().get("tokens")
        if None not in (known, tokens) and tokens != known:
            raise ValueError(
                f"start: {run} has learned other tokens than those of the task {task.name}: give "
                f"it that run's tokenizer, task.settings.tokenizer={stage}"
            )
