"""The public functions: check, choose a backend, run."""

from .attention import attention, attention_map

__all__ = ["attention", "attention_map"]
