"""The dense reference: it defines the answer.

Plain differentiable PyTorch over whole `(B, H, N, M)` matrices, in float64 if the inputs are:

    s = scale · q·kᵀ, then every weight in turn        scores
    p = normaliser(s) over the pairs that exist        probabilities; an empty row is 0
    y = dropout(p · factors) · v                       output
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..normalizers import Normalizer
from ..weights import Place, Weight
from .philox import keep
from .products import collect, meet

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
    place = Place(j - i, q, lambda rows: meet(rows, k, problem.exists), problem.scale)
    scores = problem.scale * place.meet(q)
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
    p = torch.where(exists, p if factor is None else p * factor, 0)
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
    return collect(p, v, exists).to(q.dtype)
