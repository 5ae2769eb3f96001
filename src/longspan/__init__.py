"""longspan: attention that learns how far to look."""

from . import normalizers, patterns, weights
from .functional import attention, attention_map
from .normalizers import entmax, entmax15, sparsemax

__version__ = "0.1.0"

__all__ = [
    "attention",
    "attention_map",
    "entmax",
    "entmax15",
    "normalizers",
    "patterns",
    "sparsemax",
    "weights",
]
