"""What a kernel is asked to compute: tensors and a layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..layout import Existence, Layout
from ..weights.conversions import NARROWEST

__all__ = [
    "ALPHA",
    "SUM_BYTES",
    "AlibiTerm",
    "BellReach",
    "BellTerm",
    "BiasTerm",
    "DistanceTerm",
    "Problem",
    "RampReach",
    "RampTerm",
    "Reach",
    "RelativeTerm",
    "SameReach",
    "Term",
    "limits_dtype",
]


# The most that one buffer takes: what is summed over a whole walk may have so much.
SUM_BYTES = 32 << 20

# How the gradient of α is asked for, beside the terms' (number, name).
ALPHA = (-1, "alpha")


def limits_dtype(q: Tensor) -> torch.dtype:
    """Of the rows' thresholds, which a forward leaves to its backward. On a GPU they are part of
    what a step in half precision costs.
    """
    small = q.device.type == "cuda" and q.dtype in (torch.bfloat16, torch.float16)
    return torch.float32 if small else torch.float64


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One weight as tensors; `number` is its bit in a part's `active`. Learned tensors are float32
    (or float64).
    """

    number: int


@dataclass(frozen=True, eq=False)
class BellTerm(Term):
    """exp(−(j−i)²/(2·variance)), variance `(B|1, H|1, N|1)`: see `longspan.weights.Bell`."""

    given: Tensor
    form: str
    normalized: bool

    @cached_property
    def variance(self) -> Tensor:
        """What was given, no narrower than a bell can be; NaN where it is not above 0, so that such
        rows become NaN.
        """
        return torch.where(self.given > 0, self.given.clamp(min=NARROWEST), math.nan)


@dataclass(frozen=True, eq=False)
class RampTerm(Term):
    """clip((softness + span − |i−j|)/softness, 0, 1), span `(B|1, H|1, N|1)`: see
    `longspan.weights.Ramp`.
    """

    given: Tensor
    softness: float

    @cached_property
    def span(self) -> Tensor:
        """What was given, NaN where it is not finite, so that such rows become NaN."""
        return torch.where(self.given.isfinite(), self.given, math.nan)


@dataclass(frozen=True, slots=True, eq=False)
class BiasTerm(Term):
    """A bias tensor `(B|1, H|1, N|1, M|1)` in its own dtype: see `longspan.weights.Bias`."""

    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DistanceTerm(Term):
    """A bias by distance, table `(H|1, L)`: see `longspan.weights.DistanceBias`."""

    table: Tensor
    right: int


@dataclass(frozen=True, slots=True, eq=False)
class AlibiTerm(Term):
    """−slope·|i−j|, slopes `(H|1,)`: see `longspan.weights.Alibi`."""

    slopes: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RelativeTerm(Term):
    """Transformer-XL's terms, positions `(H|1, L, D)`, biases `(H|1, D)`: see
    `longspan.weights.RelativePosition`.
    """

    positions: Tensor
    content_bias: Tensor | None
    position_bias: Tensor | None
    right: int


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How far the queries look under one weight, before it is an integer: what
    `functional.reach.integer_reach` computes it from. `number` is the weight's.
    """

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class BellReach(Reach):
    """Where a bell of this variance `(B|1, H|1, N|1)` falls to the threshold, `most` at most."""

    variance: Tensor
    threshold: float
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class RampReach(Reach):
    """The last distance at which a ramp of this span `(B|1, H|1, N|1)` is above 0."""

    span: Tensor
    softness: float


@dataclass(frozen=True, slots=True, eq=False)
class SameReach(Reach):
    """One reach for every query, known without computing."""

    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Attention over a layout.

    A backend takes the pairs that exist in one of two forms: from `layout`; or from `open_layout`
    and `reaches`, which it then applies itself wherever a reach's weight is active. The second is
    compiled once for a static pattern, the first for every call with a learned reach.

    Attributes:
        q: `(B, H, N, D)`.
        k: `(B, Hk, M, D)`; query head h reads key head h // (H / Hk).
        v: `(B, Hk, M, Dv)`.
        existence: the pairs that exist, not yet compiled.
        terms: the weights, in the order in which they act.
        alpha: of α-entmax: 1.0 softmax, 1.5, 2.0 sparsemax, any float between, or a tensor `(H,)`.
        scale: of the scores.
        dropout: share of the probabilities that goes.
        seed: int64 `(1,)`, of the dropout.
        reaches: of the weights that cut.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    existence: Existence
    terms: tuple[Term, ...]
    alpha: float | Tensor
    scale: float
    dropout: float = 0.0
    seed: Tensor | None = None
    reaches: tuple[Reach, ...] = ()

    @property
    def layout(self) -> Layout:
        """The pairs that exist."""
        return self.existence.closed

    @property
    def open_layout(self) -> Layout:
        """The pairs that exist before `reaches` cut."""
        return self.existence.open

    @property
    def wide(self) -> torch.dtype:
        """The dtype in which sums are kept."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32
