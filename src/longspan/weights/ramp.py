"""A span with a soft edge: adaptive span."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import need_number, need_tensor
from ..patterns import Pattern
from .base import Place, Weight, check_exempt, check_per_query, per_query

__all__ = ["Ramp"]


class Ramp(Weight):
    """m = clip((softness + span − |i−j|) / softness, 0, 1); adds ln m to the scores, and cuts where
    m = 0.

    Args:
        span: how far m is 1; a number, a float tensor `(H,)` for each head, or one that broadcasts
            to `(B, H, N)` with two or three dims.
        softness: tokens over which m falls from 1 to 0, above 0.
        exempt: a pattern whose pairs are neither cut nor weighted.

    Reference:
        Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers" (arXiv 1905.07799),
        equation 5: their z is `span`, their R is `softness`.
    """

    fields = ("span", "softness", "exempt")
    learned = ("span",)

    def __init__(
        self, span: float | Tensor, softness: float, *, exempt: Pattern | None = None
    ) -> None:
        if isinstance(span, Tensor):
            need_tensor("Ramp: span", span, "float", (0, 1, 2, 3))
        else:
            need_number("Ramp: span", span)
            if not math.isfinite(span):
                raise ValueError(f"Ramp: span must be finite, got {span}")
        need_number("Ramp: softness", softness)
        if not 0 < softness < math.inf:
            raise ValueError(f"Ramp: softness must be above 0 and finite, got {softness}")
        check_exempt("Ramp: exempt", exempt)
        self.span = span if isinstance(span, Tensor) else float(span)
        self.softness = float(softness)
        self.exempt = exempt

    def per_token(self) -> float | Tensor:
        """The span in a form that broadcasts to `(B, H, N)`."""
        span = self.span
        return span[:, None] if isinstance(span, Tensor) and span.dim() == 1 else span

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        check_per_query("Ramp: span", self.per_token(), batch, heads, n)

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        span = per_query(self.per_token(), place.q)
        m = (self.softness - place.offset.abs().to(span.dtype) + span) / self.softness
        # The reach has already said which pairs exist, whatever rounding says here.
        return scores + m.clamp(torch.finfo(m.dtype).tiny, 1).log()
