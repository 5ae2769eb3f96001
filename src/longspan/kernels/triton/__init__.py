"""The `triton` backend: kernels for NVIDIA GPUs, softmax family.

Triton is imported when a problem is first taken. Without it, or for what its kernels do not
compute, the backend says why and another takes the call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..problem import BellTerm, Problem, RampTerm, RelativeTerm, limits_dtype

__all__ = [
    "available",
    "backward",
    "current",
    "forward",
    "interpreted",
    "noted",
    "unsupported_reasons",
]

Wanted = frozenset[tuple[int, str]]
Gradients = tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]

LARGEST_HEAD = 256


@cache
def available() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """Whether Triton interprets its kernels, on the CPU, as tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsupported_reasons(problem: Problem) -> list[str]:
    """Why this backend cannot compute the problem."""
    reasons = []
    q, v = problem.q, problem.v
    if not available():
        reasons.append("Triton is not installed: pip install triton")
    if q.device.type != ("cpu" if interpreted() else "cuda"):
        reasons.append(f"it needs tensors on a CUDA device, got {q.device}")
    if q.dtype == torch.float64:
        reasons.append("it computes in float32, got float64")
    if not (isinstance(problem.alpha, float) and problem.alpha == 1.0):
        reasons.append("it computes softmax, got entmax")
    if any(isinstance(term, RelativeTerm) for term in problem.terms):
        reasons.append("it has no relative positions")
    if max(q.shape[3], v.shape[3]) > LARGEST_HEAD:
        reasons.append(
            f"it takes head sizes up to {LARGEST_HEAD}, got {max(q.shape[3], v.shape[3])}"
        )
    return reasons


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp, times log2(e), `(B, H, N)`."""
    from . import hopper, launch
    from .ahead import compiled_together

    with current(problem.q.device):
        return compiled_together(
            lambda: hopper.forward(problem) or launch.forward(problem),
            (lambda: _likely_backward(problem)) if problem.q.requires_grad else None,
        )


def _likely_backward(problem: Problem) -> object:
    """What may be called after a forward, as far as kernels go: the numbers are anything."""
    q, v = problem.q, problem.v
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    limits = q.new_empty(q.shape[:3], dtype=limits_dtype(q))
    # A width for every token is a learned one.
    wanted = frozenset(
        (term.number, "variance" if isinstance(term, BellTerm) else "span")
        for term in problem.terms
        if isinstance(term, (BellTerm, RampTerm)) and term.given.numel() > 1
    )
    return _backward(problem, out, limits, torch.empty_like(out), wanted)


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: Wanted
) -> Gradients:
    """Gradients of q, k and v, and the wanted ones of learned tensors; arguments as for
    `kernels.torch.backward`.
    """
    from .ahead import compiled_together

    with current(problem.q.device):
        return compiled_together(lambda: _backward(problem, out, limits, grad, wanted))


def _backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: Wanted
) -> Gradients:
    from . import hopper, launch

    given = problem, out, limits, grad, wanted
    return hopper.backward(*given) or launch.backward(*given)


def noted(problem: Problem, inputs: Sequence[Tensor], which: str) -> Any:
    """What a call launched before, to be played with other tensors; None where that is not known.
    Arguments as for `hopper.noted`.
    """
    from . import hopper

    return hopper.noted(problem, inputs, which)


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Makes a device the current one, which is where Triton launches."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)
