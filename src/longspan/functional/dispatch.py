"""Which backend runs a problem."""

from __future__ import annotations

import math
import warnings
from functools import cache
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from ..kernels import cpu, triton
from ..kernels import torch as torch_backend
from ..kernels.problem import Problem

__all__ = [
    "BACKENDS",
    "Backend",
    "choose",
    "dense_pays",
    "need_backend",
    "refusals",
    "say_once_that_it_is_dense",
]

Backend = Literal["auto", "reference", "torch", "cpu", "triton"]

# Where tiles in PyTorch overtake the dense reference, measured: 12 heads of 200 tokens.
MOST_DENSE_PAIRS = 1 << 19

# In the order in which "auto" tries them. The reference is not among them: it is asked for by name,
# or takes short calls, and weights that nobody else knows.
BACKENDS: dict[str, ModuleType] = {
    "cpu": cpu,
    "triton": triton,
    "torch": torch_backend,
}


def need_backend(backend: object) -> None:
    """Raises unless a backend has this name."""
    if backend == "auto":
        return
    names = ("auto", "reference", *BACKENDS)
    if not isinstance(backend, str):
        raise TypeError(f"backend must be one of {', '.join(names)}, got {backend!r}")
    if backend not in names:
        raise ValueError(f"backend must be one of {', '.join(names)}, got {backend!r}")


def dense_pays(q: Tensor, k: Tensor) -> bool:
    """Is a call so short that the dense reference is faster than tiles in PyTorch?

    Only asked where the compiled backend does not come first; it is faster than both.
    """
    if q.device.type != "cpu" or (cpu.available() and q.dtype != torch.float64):
        return False
    _say_once_when_not_compiled()
    return math.prod(q.shape[:3]) * k.shape[2] <= MOST_DENSE_PAIRS


def refusals(problem: Problem) -> dict[str, list[str]]:
    """For each backend that "auto" tries, why it would not take the problem; no reasons means that
    it would.
    """
    return {name: backend.unsupported_reasons(problem) for name, backend in BACKENDS.items()}


def choose(problem: Problem, backend: str) -> tuple[str, ModuleType]:
    """The backend by name, or the first that takes the problem; a named one never falls back."""
    if problem.q.device.type == "cpu":
        _say_once_when_not_compiled()
    elif backend == "auto" and not BACKENDS["triton"].unsupported_reasons(problem):
        # The one before it takes nothing that is not on the CPU; to hear why would take time.
        return "triton", BACKENDS["triton"]
    told = []
    for name, module in BACKENDS.items():
        if backend in ("auto", name):
            reasons = module.unsupported_reasons(problem)
            if not reasons:
                return name, module
            told.append(f"{name}: {', '.join(reasons)}")
    raise ValueError(f"backend={backend!r} does not take this call. {'; '.join(told)}")


@cache
def _say_once_when_not_compiled() -> None:
    if not cpu.available():
        warnings.warn(
            "longspan runs without its compiled part (a plain checkout, or no C++ compiler at "
            "installation): everything works, on the torch backend",
            RuntimeWarning,
            stacklevel=2,
        )


@cache
def say_once_that_it_is_dense() -> None:
    warnings.warn(
        "longspan: a weight of your own is computed by the dense reference, which takes memory and "
        "time for all N·M pairs; backend='reference' says so in the call",
        RuntimeWarning,
        stacklevel=3,
    )
