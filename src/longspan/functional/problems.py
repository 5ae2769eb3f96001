"""From what a call means to what a kernel is asked for."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.problem import (
    AlibiTerm,
    BellTerm,
    BiasTerm,
    DistanceTerm,
    Problem,
    RampTerm,
    RelativeTerm,
    Term,
)
from ..kernels.reference import DenseProblem
from ..layout import Cut, Existence
from ..remembering import plainly
from ..weights import (
    Alibi,
    Bell,
    Bias,
    DistanceBias,
    Ramp,
    RelativePosition,
    Weight,
)
from .encoding import Meaning
from .reach import cut_of, integer_reach, reach_source

__all__ = ["Settings", "dense_problem", "problem_of", "term_of"]


class Settings(NamedTuple):
    """The rest of a call.

    Attributes:
        stamp: in a compiled program, of the pattern's tensors and the padding as they are: see
            `ops.stamp_op`.
    """

    scale: float
    key_padding: Tensor | None = None
    dropout: float = 0.0
    seed: Tensor | None = None
    stamp: Tensor | None = None


def problem_of(q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings) -> Problem:
    """The problem for a kernel: the weights as tensors, and a layout when it asks for one."""
    n, m = q.shape[2], k.shape[2]
    alpha = meaning.normalizer.alpha
    terms = tuple([term_of(w, number, q) for number, w in enumerate(meaning.weights)])
    sources = [reach_source(w, t) for w, t in zip(meaning.weights, terms, strict=True)]
    reaches = tuple([source for source in sources if source is not None])
    existence = Existence(
        None if q.numel() == 0 or v.numel() == 0 else meaning.pattern,
        tuple([w.exempt for w in meaning.weights]),
        partial(_cuts, meaning.weights, n, q.device) if reaches else None,
        n,
        m,
        q.device,
        merge=isinstance(alpha, float) and alpha == 1.0,
        key_padding=settings.key_padding,
        stamp=settings.stamp,
    )
    if isinstance(alpha, Tensor):
        alpha = torch.where((alpha >= 1) & (alpha <= 2), alpha, math.nan).reshape(-1)
    return Problem(
        q,
        k,
        v,
        existence,
        terms,
        alpha,
        settings.scale,
        settings.dropout,
        settings.seed,
        reaches,
    )


def _cuts(weights: tuple[Weight, ...], n: int, device: torch.device) -> tuple[Cut, ...]:
    return tuple(cut_of(w, n, device) for w in weights)


def has_term(weight: Weight) -> bool:
    """Whether kernels know a weight; one of somebody's own has its dense form alone, though it may
    inherit from one that they know.
    """
    return weight.form_of in (Bell, Ramp, Bias, DistanceBias, Alibi, RelativePosition)


def term_of(weight: Weight, number: int, q: Tensor) -> Term:
    """A weight as tensors."""
    if not has_term(weight):
        raise TypeError(
            f"weight {weight!r} has no form for kernels; backend='reference' takes any weight"
        )
    if isinstance(weight, Bell):
        return BellTerm(number, _per_query(weight.variance, q), weight.form, weight.normalized)
    if isinstance(weight, Ramp):
        return RampTerm(number, _per_query(weight.per_token(), q), weight.softness)
    if isinstance(weight, Bias):
        return BiasTerm(number, weight.tensor)
    if isinstance(weight, DistanceBias):
        table = weight.table if weight.table.dim() == 2 else weight.table[None]
        return DistanceTerm(number, table, weight.right)
    if isinstance(weight, Alibi):
        return AlibiTerm(number, weight.slopes)
    assert isinstance(weight, RelativePosition)
    return RelativeTerm(
        number, weight.positions, weight.content_bias, weight.position_bias, weight.right
    )


def _per_query(value: float | Tensor, q: Tensor) -> Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    if not isinstance(value, Tensor):
        return _same_for_all(value, wide, q.device)
    x = value if value.dtype == wide and value.device == q.device else value.to(q.device, wide)
    return x if x.dim() == 3 else x.reshape((1,) * (3 - x.dim()) + tuple(x.shape))


@lru_cache(maxsize=256)
@plainly()
def _same_for_all(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number for every query, kept: a copy to a GPU for every call would wait for it."""
    return torch.tensor([[[value]]], dtype=dtype, device=device)


def dense_problem(q: Tensor, k: Tensor, meaning: Meaning, settings: Settings) -> DenseProblem:
    """The problem for the reference: everything as a dense mask."""
    n, m = q.shape[2], k.shape[2]
    exists = meaning.pattern.dense(n, m, device=q.device)
    i = torch.arange(m - n, m, device=q.device)[:, None]
    j = torch.arange(m, device=q.device)[None, :]
    exempts = []
    for weight in meaning.weights:
        exempt = None
        if weight.exempt is not None:
            exempt = weight.exempt.dense(n, m, device=q.device)
        reach = integer_reach(weight, q.device)
        if reach is not None:
            near = (j - i).abs() <= reach[..., None]
            exists = exists & (near if exempt is None else near | exempt)
        exempts.append(exempt)
    if settings.key_padding is not None:
        exists = exists & settings.key_padding[:, None, None, :]
    return DenseProblem(
        exists,
        meaning.weights,
        tuple(exempts),
        meaning.normalizer,
        settings.scale,
        settings.dropout,
        settings.seed,
    )
