"""longspan: attention that learns how far to look."""

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

__version__ = "0.1.0"

__all__ = [
    "attention",
    "attention_map",
    "check",
    "entmax",
    "entmax15",
    "explain",
    "nn",
    "normalizers",
    "patterns",
    "sparsemax",
    "weights",
]
