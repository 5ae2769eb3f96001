"""The portable backend: tiled, pure PyTorch, on any device.

Forward and backward visit groups of tiles (`layout.visit`): gather queries and keys, one batched
product for the scores, the weights in turn, the normaliser over whole rows, one product with the
values. The backward recomputes what the forward had. No working buffer is over 32 MiB. On a GPU
each call waits once for the layout's counts and once to know whether all inputs are finite; faster
backends do neither.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..fixed_order import add_at, row_sum
from ..normalizers.tsallis import above, alpha_gradient, exponential, score_gradient, threshold
from .key_sums import KeySums, SlotSums, key_heads_at_once
from .philox import keep
from .problem import ALPHA, Problem, RelativeTerm
from .products import all_finite
from .tile import Tile, plan_for, tiles_of
from .tile_terms import Gradients, TileTerm, tile_terms

__all__ = ["backward", "forward", "unsupported_reasons"]


def unsupported_reasons(problem: Problem) -> list[str]:
    """Why this backend cannot compute the problem: never, it takes everything."""
    return []


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's T `(B, H, N)`: see `normalizers.tsallis`."""
    q, v = problem.q, problem.v
    shape = q.shape[:3]
    dtype = problem.wide if problem.layout.merged else q.dtype
    out = q.new_zeros(*shape, v.shape[3], dtype=dtype)
    limits = q.new_full(shape, -math.inf, dtype=torch.float64)
    finite = all_finite(v)
    for walk in problem.layout.walks:
        for tile in tiles_of(problem, walk, finite=finite):
            scores, _ = _scores(tile)
            p, limit = _normalized(scores, _alpha(tile))
            y = tile.collect_values(_after(tile, p, tile_terms(problem, tile)).a)
            if len(problem.layout.walks) > 1:
                y, limit = _merged(problem, y, limit, out[tile.at], limits[tile.at])
            out[tile.at] = y.to(dtype)
            limits[tile.at] = limit
    return out.to(q.dtype), limits


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors, summed to shapes that may be
    larger than theirs.

    Args:
        problem: what was computed.
        out: its output.
        limits: its thresholds.
        grad: the gradient of the output.
        wanted: learned tensors, by their term's number and their name, or `ALPHA`.
    """
    q, k, v = problem.q, problem.k, problem.v
    several = len(problem.layout.walks) > 1
    dq = torch.zeros_like(q, dtype=problem.wide if several else q.dtype)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    learned = [t.positions for t in problem.terms if isinstance(t, RelativeTerm)]
    finite = all_finite(q, k, v, grad, *learned)
    saved = _Saved(out, limits, grad, dq, Gradients(problem, wanted))
    for which in key_heads_at_once(problem):
        sums = KeySums(problem, which, dk, dv)
        for walk in problem.layout.walks:
            for slots in sums.ranges(walk, plan_for(problem, walk)):
                for units, whole in slots.units():
                    for tile in tiles_of(problem, walk, finite=finite, units=units, only=which):
                        _backward_tile(tile, slots, saved, whole)
                slots.finish()
        sums.write()
    return dq.to(q.dtype), dk, dv, saved.gradients.sums


class _Saved(NamedTuple):
    """What the backward of every tile reads, and where the gradients of rows go."""

    out: Tensor
    limits: Tensor
    grad: Tensor
    dq: Tensor
    gradients: Gradients


class _After(NamedTuple):
    """What comes after the normaliser: the weights that meet the values, and what made them of the
    probabilities.
    """

    a: Tensor
    factor: Tensor | None
    kept: Tensor | None


def _alpha(tile: Tile) -> float | Tensor:
    alpha = tile.problem.alpha
    return alpha if isinstance(alpha, float) else tile.per_head(alpha)[..., None, None]


def _scores(tile: Tile) -> tuple[Tensor, list[TileTerm]]:
    """Scores `(P, G, R, L)` after all weights, −inf where no pair exists, and the terms as they
    went forward.
    """
    terms = tile_terms(tile.problem, tile)
    s = tile.meet_keys(tile.q).mul_(tile.problem.scale)
    for term in terms:
        s = term.forward(s)
        removed = term.removed()
        if removed is not None:
            tile.seen = tile.seen & ~removed
    return torch.where(tile.seen, s, -math.inf), terms


def _normalized(scores: Tensor, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities that sum to one (0 in empty rows), and thresholds."""
    limit = threshold(scores, alpha)
    return _summing_to_one(exponential(above(scores, limit), alpha)), limit


def _summing_to_one(p: Tensor) -> Tensor:
    """Takes out what rounding of a threshold did to whole rows."""
    total = row_sum(p, keepdim=True)
    return p / torch.where(total == 0, 1, total)


def _after(tile: Tile, p: Tensor, terms: list[TileTerm]) -> _After:
    problem, factor, kept = tile.problem, None, None
    for term in terms:
        own = term.factor()
        if own is not None:
            factor = own if factor is None else factor * own
    a = p if factor is None else p * factor
    if problem.dropout > 0:
        assert problem.seed is not None
        shift = problem.layout.m - problem.layout.n
        b, h = tile.b[..., None, None], tile.h[..., None, None]
        i, j = (tile.rows + shift)[:, :, None], tile.keys[:, None, :]
        kept = keep(problem.seed, problem.dropout, b, h, i, j)
        a = torch.where(kept, a, 0) / (1 - problem.dropout)
    return _After(torch.where(tile.seen, a, 0), factor, kept)


def _merged(
    problem: Problem, y: Tensor, limit: Tensor, old_y: Tensor, old_limit: Tensor
) -> tuple[Tensor, Tensor]:
    """A row's result so far and that of one more walk; where only one has pairs, that one."""
    if not problem.layout.merged:
        new = limit != -math.inf
        return torch.where(new[..., None], y, old_y.to(y.dtype)), torch.where(new, limit, old_limit)
    larger = torch.maximum(limit, old_limit)
    safe = torch.where(larger == -math.inf, 0, larger)
    own, other = (limit - safe).exp(), (old_limit - safe).exp()
    total = torch.where(own + other == 0, 1, own + other)
    share, old_share = ((x / total)[..., None].to(y.dtype) for x in (own, other))
    return share * y + old_share * old_y, larger + total.log()


def _merged_mean(p: Tensor, dp: Tensor, grad: Tensor, out: Tensor) -> Tensor:
    """The mean of dp under p over all of a row, `(P, G, R, 1)`, which may have pairs elsewhere.

    The output tells it. But where all of the row is here, as far as the output can tell, it is
    summed over the pairs: of a single one nothing may be left but 0, and the output's rounding
    would be, times queries of any size.
    """
    total, here = row_sum(p, keepdim=True), row_sum(p * dp, keepdim=True)
    each = grad * out.to(grad.dtype)
    told, size = each.sum(-1, keepdim=True), each.abs().sum(-1, keepdim=True)
    whole = total >= 1 - 2 * torch.finfo(p.dtype).eps
    whole &= (here - told).abs() <= 2 * torch.finfo(out.dtype).eps * size
    return torch.where(whole, here / torch.where(total == 0, 1, total), told)


def _backward_tile(tile: Tile, slots: SlotSums, saved: _Saved, whole: bool) -> None:
    """Adds one tile's gradients; those of its rows only when `whole`, as a unit may come again for
    its other keys.
    """
    problem, alpha = tile.problem, _alpha(tile)
    limit = saved.limits[tile.at]
    scores, terms = _scores(tile)
    p = torch.where(tile.seen, exponential(above(scores, limit), alpha), 0)
    if not problem.layout.merged:
        p = _summing_to_one(p)
    after = _after(tile, p, terms)
    grad = saved.grad[tile.at].to(problem.wide)
    da = torch.where(tile.seen, tile.meet_values(grad), 0)
    dp = da if after.factor is None else da * after.factor
    dp = dp if after.kept is None else torch.where(after.kept, dp, 0) / (1 - problem.dropout)
    if problem.layout.merged:
        ds = p * (dp - _merged_mean(p, dp, grad, saved.out[tile.at]))
    else:
        ds = score_gradient(p, dp, alpha)
    ds = torch.where(tile.seen, ds, 0)
    gradients = saved.gradients if whole else Gradients(problem, frozenset())
    if ALPHA in gradients.wanted:
        total = gradients.sum_for(ALPHA, (problem.q.shape[1],))
        each = alpha_gradient(p, dp, alpha)
        add_at(total, tile.h[..., None].expand_as(each).flatten(), each.flatten())
    to_q = torch.zeros_like(tile.q)
    to_keys = []
    for term in reversed(terms):
        if term.factor() is not None:
            term.factor_backward(after.a * da, gradients)
        ds = term.backward(ds, gradients, to_q)
        beside = term.to_keys()
        to_keys += [] if beside is None else [beside]
    ds = ds * problem.scale
    if whole:
        to_q += tile.collect_keys(ds)
        saved.dq[tile.at] = (saved.dq[tile.at] + to_q).to(saved.dq.dtype)
    slots.add(tile, [(ds, tile.q), *to_keys], (after.a, grad))
