"""longspan: attention that learns how far to look."""

from . import normalizers, patterns, weights
from .functional import attention, attention_map, check, explain
from .normalizers import entmax, entmax15, sparsemax

__version__ = "0.1.0"

__all__ = [
    "attention",
    "attention_map",
    "check",
    "entmax",
    "entmax15",
    "explain",
    "normalizers",
    "patterns",
    "sparsemax",
    "weights",
]
