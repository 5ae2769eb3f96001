"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["PATH", "expanded", "home"]


def expanded(path: str | Path) -> Path:
    """With the home folder that `~` stands for: no shell has seen what stands behind an equals
    sign, in a file or in Python.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"nobody tells where the home folder in {path} is") from None


def home() -> Path | None:
    """The home folder, if there is one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


# What a command's option is made with that is a path: shells leave what stands behind an equals
# sign as it is.
PATH: Any = {"parser": expanded, "metavar": "PATH"}
