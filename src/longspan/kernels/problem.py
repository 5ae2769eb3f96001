"""What a kernel is asked to compute: tensors and a layout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..layout import Layout

__all__ = [
    "ALPHA",
    "AlibiTerm",
    "BellTerm",
    "BiasTerm",
    "DistanceTerm",
    "Problem",
    "RampTerm",
    "RelativeTerm",
    "Term",
]


# How the gradient of α is asked for, beside the terms' (number, name).
ALPHA = (-1, "alpha")


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One weight as tensors; `number` is its bit in a part's `active`. Learned tensors are float32
    (or float64).
    """

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class BellTerm(Term):
    """exp(−(j−i)²/(2·variance)), variance `(B|1, H|1, N|1)`: see `longspan.weights.Bell`."""

    variance: Tensor
    form: str
    normalized: bool


@dataclass(frozen=True, slots=True, eq=False)
class RampTerm(Term):
    """clip((softness + span − |i−j|)/softness, 0, 1), span `(B|1, H|1, N|1)`: see
    `longspan.weights.Ramp`.
    """

    span: Tensor
    softness: float


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
class Problem:
    """Attention over a layout.

    Attributes:
        q: `(B, H, N, D)`.
        k: `(B, Hk, M, D)`; query head h reads key head h // (H / Hk).
        v: `(B, Hk, M, Dv)`.
        layout: the pairs that exist.
        terms: the weights, in the order in which they act.
        alpha: of α-entmax: 1.0 softmax, 1.5, 2.0 sparsemax, any float between, or a tensor `(H,)`.
        scale: of the scores.
        dropout: share of the probabilities that goes.
        seed: int64 `(1,)`, of the dropout.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    layout: Layout
    terms: tuple[Term, ...]
    alpha: float | Tensor
    scale: float
    dropout: float = 0.0
    seed: Tensor | None = None

    @property
    def wide(self) -> torch.dtype:
        """The dtype in which sums are kept."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32
