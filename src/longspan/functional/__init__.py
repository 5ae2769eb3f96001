"""The public functions: check, choose a backend, run."""

from .attention import attention, attention_map
from .explain import Explanation, check, explain

__all__ = ["Explanation", "attention", "attention_map", "check", "explain"]
