"""The dense reference: it defines the answer.

Plain differentiable PyTorch over whole `(B, H, N, M)` matrices, in float64 if the inputs are:

    s = scale · q·kᵀ, then every weight in turn        scores
    p = normaliser(s) over the pairs that exist        probabilities; an empty row is 0
    y = dropout(p · factors) · v                       output
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..normalizers import Normalizer
from ..weights import Place, Weight
from .philox import keep
from .products import over_seen

__all__ = ["DenseProblem", "attend", "probabilities"]


@dataclass(frozen=True, slots=True, eq=False)
class DenseProblem:
    """What the reference computes.

    Attributes:
        exists: which pairs exist, bool `(B|1, H|1, N, M)`.
        weights: in the order in which they act.
        exempt: for each weight the pairs that it leaves alone, bool, or None for none.
        normalizer: scores to probabilities.
        scale: of the scores.
        dropout: share of the probabilities that goes.
        seed: int64 `(1,)`, of the dropout.
    """

    exists: Tensor
    weights: tuple[Weight, ...]
    exempt: tuple[Tensor | None, ...]
    normalizer: Normalizer
    scale: float
    dropout: float = 0.0
    seed: Tensor | None = None


def probabilities(q: Tensor, k: Tensor, problem: DenseProblem) -> tuple[Tensor, Tensor]:
    """Normalised weights before dropout `(B, H, N, M)`, and which pairs exist after all biases."""
    heads = q.shape[1]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    n, m = q.shape[2], k.shape[2]
    i = torch.arange(m - n, m, device=q.device)[:, None]
    j = torch.arange(m, device=q.device)[None, :]
    place = Place(j - i, q, k, problem.scale)
    scores = problem.scale * (q @ k.transpose(-1, -2))
    exists, factor = problem.exists, None
    for weight, exempt in zip(problem.weights, problem.exempt, strict=True):
        changed = weight.on_scores(scores, place)
        scores = changed if exempt is None else torch.where(exempt, scores, changed)
        own = weight.on_probabilities(place)
        if own is not None:
            own = own if exempt is None else torch.where(exempt, 1, own)
            factor = own if factor is None else factor * own
        kept = weight.keeps()
        exists = exists if kept is None else exists & kept
    p = problem.normalizer.probabilities(scores, exists)
    p = p if factor is None else p * torch.where(exists, factor, 0)
    return p, exists.expand(p.shape)


def attend(q: Tensor, k: Tensor, v: Tensor, problem: DenseProblem) -> Tensor:
    """Attention `(B, H, N, Dv)`, computed in float32 or, for float64 inputs, in float64."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    p, exists = probabilities(q.to(wide), k.to(wide), problem)
    if problem.dropout > 0:
        assert problem.seed is not None
        batch, heads, n, m = p.shape
        counters = [torch.arange(size, device=q.device) for size in (batch, heads)]
        i = torch.arange(m - n, m, device=q.device)[:, None]
        j = torch.arange(m, device=q.device)[None, :]
        b, h = counters[0][:, None, None, None], counters[1][:, None, None]
        kept = keep(problem.seed, problem.dropout, b, h, i, j)
        p = torch.where(kept, p, 0) / (1 - problem.dropout)
    v = v.to(wide).repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    # A traced program cannot look at values: it takes the way that is right for any.
    finite = False if torch.compiler.is_compiling() else None
    return _Once.apply(over_seen(p, exists, v, finite=finite)).to(q.dtype)


class _Once(torch.autograd.Function):
    """The identity, whose gradient cannot be differentiated again: no backend offers that."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g
