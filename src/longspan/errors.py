"""Checks that every part uses, and how their messages read: the argument, what came, what was
expected.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "broadcasts",
    "describe",
    "need_bool",
    "need_int",
    "need_number",
    "need_tensor",
    "need_text",
    "need_values",
]

INTEGER_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def describe(value: Any) -> str:
    """Says what a value is, short enough for one line: a tensor by dtype and shape."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{_a(kind)} tensor of shape {tuple(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _a(kind: str) -> str:
    return f"{'an' if kind.startswith('i') else 'a'} {kind}"


def broadcasts(size: int, wanted: int) -> bool:
    """Is a size 1, or the one wanted? (`in (1, wanted)` would not see through the sizes of a traced
    program.)
    """
    return size == 1 or size == wanted


def need_int(name: str, value: Any, *, at_least: int | None = None) -> None:
    """Raises unless `value` is a whole number (a bool is not one) that is not too small."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{name} must be an int, got {describe(value)}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")


def need_number(name: str, value: Any) -> None:
    """Raises unless `value` is a Python number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymInt, torch.SymFloat)):
        raise TypeError(f"{name} must be a number, got {describe(value)}")


def need_bool(name: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {describe(value)}")


def need_text(name: str, value: Any) -> None:
    """Raises unless `value` is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {describe(value)}")


def need_tensor(name: str, value: Any, kind: str, dims: tuple[int, ...]) -> None:
    """Raises unless `value` is a tensor of a kind ("bool", "int", "float") with so many dims."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be {_a(kind)} tensor, got {describe(value)}")
    if kind == "bool":
        fits = value.dtype == torch.bool
    elif kind == "int":
        fits = value.dtype in INTEGER_DTYPES
    else:
        fits = value.is_floating_point()
    if not fits:
        raise TypeError(f"{name} must be {_a(kind)} tensor, got {describe(value)}")
    if value.dim() not in dims:
        expected = " or ".join(str(d) for d in dims)
        raise ValueError(f"{name} must have {expected} dimensions, got {describe(value)}")


def need_values(message: str, value: Tensor, fine: Tensor) -> None:
    """Raises unless all values of a tensor are fine. Reads them, so a GPU is waited for."""
    if not bool(fine.all()):
        bad = value.detach()[~fine].flatten()
        raise ValueError(f"{message}, got {bad[0].item()} ({bad.numel()} such of {value.numel()})")
