"""Runs problems on the compiled module."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..problem import ALPHA, Problem, RelativeTerm
from .native import available, native
from .request import Request, fills_keys, fills_rows

__all__ = ["backward", "forward", "unsupported_reasons"]

# The instruction set to use; empty for the best that the machine has. Tests go through all of them.
INSTRUCTIONS = ""

# Gradients that are summed for every sample apart.
PER_SAMPLE = ("table", "slopes", "content_bias", "position_bias")
MOST_TERMS = 16
MOST_ORDERS = 8
# Positions are float32 inside, which has every whole number up to here.
MOST_KEYS = 1 << 24
# Below so many numbers a second thread costs more than it does.
WORTH_THREADS = 1 << 15


def unsupported_reasons(problem: Problem) -> list[str]:
    """Why this backend cannot compute the problem."""
    reasons = []
    if not available():
        reasons.append("it was not built (a plain checkout, or no C++ compiler at installation)")
    if problem.q.device.type != "cpu":
        reasons.append(f"it needs tensors on the CPU, got {problem.q.device}")
    if problem.q.dtype == torch.float64:
        reasons.append("it computes in float32, got float64")
    relative = sum(isinstance(term, RelativeTerm) for term in problem.terms)
    if relative > 1:
        reasons.append(f"it takes relative positions once, got {relative}")
    if len(problem.terms) > MOST_TERMS:
        reasons.append(f"it takes at most {MOST_TERMS} weights, got {len(problem.terms)}")
    keys = problem.k.shape[2]
    if keys >= MOST_KEYS:
        reasons.append(f"it takes fewer than {MOST_KEYS:,} keys, got {keys:,}")
    # A layout is compiled for those alone who may take it.
    for walk in () if reasons else problem.layout.walks:
        orders = len({id(p.keys) for p in walk.parts if p.keys.index is not None}) + 1
        if orders > MOST_ORDERS:
            reasons.append(f"it takes at most {MOST_ORDERS} orders of keys, got {orders}")
    return reasons


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's T `(B, H, N)`: see `normalizers.tsallis`."""
    q, v = problem.q, problem.v
    shape = (*q.shape[:3], v.shape[3])
    make = torch.empty if fills_rows(problem.layout) else torch.zeros
    out = make(shape, dtype=torch.float32, device="cpu")
    limits = torch.full(shape[:3], -math.inf, dtype=torch.float64, device="cpu")
    request = Request(problem)
    request.fields |= {"out": request.vectors(out), "limits": request.numbers(limits)}
    native().forward(request.fields, _threads(problem), INSTRUCTIONS)
    return out.to(q.dtype), limits


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors; arguments as for
    `kernels.torch.backward`.
    """
    q, k, v, layout = problem.q, problem.k, problem.v, problem.layout
    request = Request(problem, wanted=wanted)
    dq = _gradient_of(q, fills_rows(layout))
    dk, dv = (_gradient_of(x, fills_keys(layout)) for x in (k, v))
    request.fields |= {
        "out": request.vectors(out),
        "limits": request.numbers(limits.contiguous()),
        "grad": request.vectors(grad),
        "dq": request.vectors(dq),
        "dk": request.vectors(dk),
        "dv": request.vectors(dv),
    }
    native().backward(
        request.fields, _threads(problem), INSTRUCTIONS, request.join_samples, request.join_heads
    )
    sums = {}
    for key, total in request.sums.items():
        per_sample = key == ALPHA or key[1] in PER_SAMPLE
        sums[key] = total.sum(0) if per_sample else total
    return _like(dq, q), _like(dk, k), _like(dv, v), sums


def _gradient_of(x: Tensor, filled: bool) -> Tensor:
    """Room for the gradient of x in float32; cleared unless all of it is going to be written."""
    made = torch.empty_like(x, dtype=torch.float32)
    if made.stride(3) != 1 and made.shape[3] != 1:
        made = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return made if filled else made.zero_()


def _like(made: Tensor, x: Tensor) -> Tensor:
    """A gradient in the dtype and with the strides that the operator promises."""
    promised = torch.empty_like(x)
    if made.dtype == x.dtype and made.stride() == promised.stride():
        return made
    return promised.copy_(made)


def _threads(problem: Problem) -> int:
    return torch.get_num_threads() if problem.q.numel() > WORTH_THREADS else 1
