"""The public functions: check, choose a backend, run."""

from .attention import attention, attention_map
from .dispatch import Backend
from .explain import Explanation, check, explain
from .normalize import entmax, entmax15, sparsemax

__all__ = [
    "Backend",
    "Explanation",
    "attention",
    "attention_map",
    "check",
    "entmax",
    "entmax15",
    "explain",
    "sparsemax",
]
