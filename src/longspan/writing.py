"""Files and folders that are there whole or not at all: written to the side, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ASIDE", "folder_aside", "on_disk", "whole_file", "write_text"]

# How the names of what is being written begin; what is left of them was never finished.
ASIDE = ".writing-"


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A place to write to, which becomes the file `path` once it is on the disk. Where writing
    fails, nothing has changed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _beside(path)
    try:
        yield aside
        on_disk(aside)
        aside.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(aside)):
            raise
        # Nobody knows it by the name that it has until then.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, *, errors: str = "strict") -> None:
    """Writes a text file, whole or not at all."""
    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8", errors=errors)


def folder_aside(path: Path) -> Path:
    """A new folder beside where `path` is or will be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _beside(path)
    aside.mkdir()
    return aside


def on_disk(path: Path) -> None:
    """Waits until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(path: Path) -> Path:
    """A name that nobody has. Not by `tempfile`, whose files nobody else may ever read."""
    return path.with_name(f"{ASIDE}{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")
