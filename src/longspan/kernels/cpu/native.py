"""The compiled module, where it was built."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["available", "instruction_sets", "native"]

_native: ModuleType | None
try:
    _native = importlib.import_module("longspan.kernels.cpu._native")
except ImportError:
    _native = None


def native() -> ModuleType:
    """The compiled module; only to be asked for where it is `available`."""
    assert _native is not None
    return _native


def available() -> bool:
    """Whether the compiled part of this backend can be imported."""
    return _native is not None


def instruction_sets() -> list[str]:
    """The vector instruction sets that this machine can run, best first.

    Returns:
        Some of `"avx512"` (the subsets F, BW, VL and DQ), `"avx2"` (with FMA) and `"portable"`, in
        this order. `"portable"` is always there, and is all there is where the compiled part was
        not built.
    """
    if _native is None:
        return ["portable"]
    sets: list[str] = _native.instruction_sets()
    return sets
