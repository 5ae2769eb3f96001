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

from ..fixed_order import lookup, spread
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
    exists = problem.exists
    for weight in problem.weights:
        kept = weight.keeps()
        exists = exists if kept is None else exists & kept
    # What no pair reads is taken out before anything is computed from it, and pairs that do not
    # exist have a score of 0 throughout: of a NaN there 0 times a gradient would be NaN again.
    q = torch.where(exists.any(-1, keepdim=True), q, 0)
    place = Place(
        j - i,
        q,
        lambda rows: meet(rows, k, exists),
        lambda rows, table, index: _meet_at(rows, table, index, exists),
        problem.scale,
    )
    scores, factor = problem.scale * place.meet(q), None
    for weight, exempt in zip(problem.weights, problem.exempt, strict=True):
        acts = exists if exempt is None else exists & ~exempt
        scores = torch.where(acts, weight.on_scores(scores, place), scores)
        own = weight.on_probabilities(place)
        if own is not None:
            own = torch.where(acts, own, 1)
            factor = own if factor is None else factor * own
    p = problem.normalizer.probabilities(scores, exists)
    p = torch.where(exists, p if factor is None else p * factor, 0)
    return p, exists.expand(p.shape)


def _meet_at(rows: Tensor, table: Tensor, index: Tensor, exists: Tensor) -> Tensor:
    """For every pair its row · table[index]; what no pair of a row reads has no gradient."""
    (batch, heads, n, d), length = rows.shape, table.shape[1]
    # One place more, for pairs that do not exist.
    read = exists.new_zeros(*exists.shape[:2], n, length + 1)
    read = read.scatter(-1, torch.where(exists, index, length), True)[..., :length]
    every = meet(rows, spread(table, (batch, heads, length, d)), read)  # (B, H, N, L)
    row = torch.arange(n, device=index.device)[:, None]
    return lookup(every.flatten(2), row * length + index)


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
