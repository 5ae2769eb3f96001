"""A bell curve around every query: the learned window."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..errors import describe, need_bool, need_int, need_number, need_tensor
from ..patterns import Pattern
from .base import Place, Weight, check_exempt, check_per_query, per_query
from .conversions import NARROWEST, check_threshold

__all__ = ["Bell"]

FORMS = ("bias", "score", "weight")


class Bell(Weight):
    """U = exp(−(j−i)² / (2·variance)), a width for every token and head.

    With a threshold, pairs at which U has fallen below it do not exist: that is the query's reach.
    `max_reach` cuts too, with or without a threshold. What is cut gets no gradient; inside, the
    variance learns through U.

    Args:
        variance: above 0; a number, or a float tensor that broadcasts to `(B, H, N)`. Float32
            whatever q is. One below 10⁻¹² counts as 10⁻¹², without gradient: such a bell leaves
            nothing but its own token, or the next where that is missing.
        threshold: between 0 and 1; None cuts nothing.
        max_reach: the most tokens each side. It changes the cut, never the variance.
        exempt: a pattern whose pairs are neither cut nor weighted (global tokens).
        form: `"bias"` adds ln U to the scores; `"score"` multiplies the scores by U; `"weight"`
            multiplies the probabilities by U without normalising again.
        normalized: multiplies U by 1/√(2π·variance).

    Reference:
        Grown from Yang et al. 2018, "Modeling Localness for Self-Attention Networks" (EMNLP), whose
        σ² is our variance and whose predicted centre is fixed here at the query itself.
    """

    fields = ("variance", "threshold", "max_reach", "exempt", "form", "normalized")
    learned = ("variance",)

    def __init__(
        self,
        variance: float | Tensor,
        *,
        threshold: float | None = None,
        max_reach: int | None = None,
        exempt: Pattern | None = None,
        form: Literal["bias", "score", "weight"] = "bias",
        normalized: bool = False,
    ) -> None:
        if isinstance(variance, Tensor):
            need_tensor("Bell: variance", variance, "float", (0, 1, 2, 3))
        else:
            need_number("Bell: variance", variance)
            if not variance > 0:
                raise ValueError(f"Bell: variance must be above 0, got {variance}")
        if threshold is not None:
            check_threshold("Bell: threshold", threshold)
        if max_reach is not None:
            need_int("Bell: max_reach", max_reach, at_least=0)
        check_exempt("Bell: exempt", exempt)
        if form not in FORMS:
            raise ValueError(f"Bell: form must be one of {', '.join(FORMS)}, got {describe(form)}")
        need_bool("Bell: normalized", normalized)
        self.variance = variance if isinstance(variance, Tensor) else float(variance)
        self.threshold = threshold
        self.max_reach = max_reach
        self.exempt = exempt
        self.form = form
        self.normalized = normalized

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        check_per_query("Bell: variance", self.variance, batch, heads, n)

    def log_curve(self, place: Place) -> Tensor:
        """ln U, `(B|1, H|1, N, M)`."""
        variance = per_query(self.variance, place.q)
        narrow = (variance > 0) & (variance < NARROWEST)
        variance = torch.where(narrow, NARROWEST, variance)
        curve = -place.offset.to(place.q.dtype).square() / (2 * variance)
        return curve - (2 * math.pi * variance).log() / 2 if self.normalized else curve

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        if self.form == "bias":
            return scores + self.log_curve(place)
        return scores * self.log_curve(place).exp() if self.form == "score" else scores

    def on_probabilities(self, place: Place) -> Tensor | None:
        return self.log_curve(place).exp() if self.form == "weight" else None
