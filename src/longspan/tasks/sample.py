"""The small real data that ships in the package; NOTICE says whose it is."""

from __future__ import annotations

from pathlib import Path

__all__ = ["sample"]


def sample(name: str) -> Path:
    """The path of a file of the package's data."""
    path = Path(__file__).parent.parent / "data" / name
    if not path.is_file():
        raise FileNotFoundError(f"the package lacks {path}: install longspan again")
    return path
