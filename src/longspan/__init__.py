"""longspan: attention that learns how far to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import nn, normalizers, patterns, weights
from .functional import (
    attention,
    attention_map,
    check,
    entmax,
    entmax15,
    explain,
    sparsemax,
)

if TYPE_CHECKING:
    from .training import load

__version__ = "0.1.0"

__all__ = [
    "attention",
    "attention_map",
    "check",
    "entmax",
    "entmax15",
    "explain",
    "load",
    "nn",
    "normalizers",
    "patterns",
    "sparsemax",
    "weights",
]


def __getattr__(name: str) -> Any:
    # What was trained needs more than torch: it is imported when someone asks for it.
    if name == "load":
        from .training import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
