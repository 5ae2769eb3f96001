"""What a run leaves behind, in files that are whole or not there."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..writing import ASIDE, folder_aside, on_disk, write_text

__all__ = [
    "Metrics",
    "clean",
    "finite",
    "full_disk_said",
    "whole_folder",
    "write_json",
]


@contextmanager
def full_disk_said(path: Path) -> Iterator[None]:
    """A full disk is said with what was to be written, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(
            errno.ENOSPC,
            f"no space is left on the disk for {path}: what was there is whole; free some, and go "
            "on with the same command",
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Writes JSON to the side, and renames it."""
    with full_disk_said(path):
        write_text(path, json.dumps(finite(content), indent=2, ensure_ascii=False) + "\n")


def finite(content: Any) -> Any:
    """The same with None for numbers that JSON has not."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return content


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A place to write files in, which becomes the folder `path` once all of them are on the disk.

    What was there is gone only after that; where writing fails, nothing has changed.
    """
    with full_disk_said(path):
        aside = folder_aside(path)
        try:
            yield aside
            for own in aside.iterdir():
                on_disk(own)
            on_disk(aside)
            if path.exists():
                before = folder_aside(path)
                path.replace(before)
                aside.replace(path)
                shutil.rmtree(before)
            else:
                aside.replace(path)
            on_disk(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def clean(folder: Path) -> None:
    """Removes what a run that was ended had begun to write."""
    for path in folder.rglob(f"{ASIDE}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class Metrics:
    """`metrics.jsonl`, one JSON object a line.

    Args:
        path: of the file.
        size: bytes that it is cut back to, those of the checkpoint that a run goes on from.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab")
        if self._file.tell() < size:
            self._file.close()
            raise ValueError(
                f"{path} is shorter than it was when the checkpoint was written: it was changed, "
                "and the run cannot go on; start it anew"
            )
        self._file.truncate(size)
        self._file.seek(size)

    def write(self, line: dict[str, Any]) -> None:
        text = json.dumps(finite(line), ensure_ascii=False)
        with full_disk_said(self._path):
            self._file.write(text.encode() + b"\n")
            self._file.flush()

    def size(self) -> int:
        """Bytes until now, all of them on the disk."""
        with full_disk_said(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        with full_disk_said(self._path):
            self._file.close()
