"""The normalisers as objects: each is α-entmax for its own α."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import describe
from ..kinds import register_kind
from .functions import check_alpha, entmax

__all__ = ["Entmax", "Normalizer", "Softmax", "Sparsemax"]


class Normalizer:
    """Scores to probabilities, over the pairs that exist.

    Every normaliser here is α-entmax for some α: a new one gives its `alpha`, and nothing else, for
    kernels know no more of it.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[tuple[str, ...]] = ("alpha",)
    alpha: float | Tensor

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "probabilities" in vars(cls):
            raise TypeError(
                f"normaliser {cls.__name__}: probabilities would not be called by kernels, which "
                "know α-entmax alone; give alpha, and leave probabilities as they are"
            )
        register_kind(cls)

    def probabilities(self, scores: Tensor, exists: Tensor) -> Tensor:
        """The dense form: `(B, H, N, M)` scores and which pairs exist; a row without pairs gives
        zeros.
        """
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            alpha = alpha.to(scores.dtype).reshape(-1, 1, 1)
        return entmax(torch.where(exists, scores, -math.inf), alpha)

    def values(self) -> tuple[Any, ...]:
        """The constructor's arguments, in the order of `fields`."""
        return tuple(getattr(self, name) for name in self.fields)

    def __repr__(self) -> str:
        shown = (describe(v) if isinstance(v, Tensor) else repr(v) for v in self.values())
        return f"{type(self).__name__}({', '.join(shown)})"


class Softmax(Normalizer):
    """p_j = exp(s_j) / Σ exp(s): every pair that exists counts."""

    alpha = 1.0


class Sparsemax(Normalizer):
    """p_j = [s_j − τ]₊: pairs far below the best get exactly 0 (Martins, Astudillo 2016, arXiv
    1602.02068).
    """

    alpha = 2.0


class Entmax(Normalizer):
    """p_j = [(α−1)·s_j − τ]₊^(1/(α−1)): softmax at α = 1, sparsemax at α = 2, and all between.

    Args:
        alpha: a number in [1, 2], or a float tensor `(H,)`, one for each query head, which gets a
            gradient.

    Reference:
        Peters et al. 2019 (arXiv 1905.05702); learned α: Correia et al. 2019 (arXiv 1909.00015).
    """

    fields = ("alpha",)

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        check_alpha("Entmax: alpha", alpha)
        if isinstance(alpha, Tensor) and alpha.dim() > 1:
            raise ValueError(f"Entmax: alpha must have shape (H,), got {describe(alpha)}")
        self.alpha = alpha if isinstance(alpha, Tensor) else float(alpha)
