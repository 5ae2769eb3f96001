"""One's own stride, and the summaries at the end of every stride."""

from __future__ import annotations

from torch import Tensor

from .base import Pattern, need_count

__all__ = ["Fixed", "Summaries"]


class Fixed(Pattern):
    """The pair (i, j) exists when ⌊i/stride⌋ = ⌊j/stride⌋, or j mod stride ≥ stride − summary.

    ```
    ■ ■ ■ · · ■
    ■ ■ ■ · · ■
    ■ ■ ■ · · ■      Fixed(3, 1)
    · · ■ ■ ■ ■
    · · ■ ■ ■ ■
    · · ■ ■ ■ ■
    ```

    Args:
        stride: tokens a block.
        summary: how many tokens at the end of each block everybody sees; 0 … stride.

    Reference:
        Child et al. 2019, "Sparse Transformers" (arXiv 1904.10509). Theirs is `Causal() & Fixed(l,
        c)`.
    """

    fields = ("stride", "summary")

    def __init__(self, stride: int, summary: int) -> None:
        _check("Fixed", stride, summary)
        self.stride = stride
        self.summary = summary

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        own = i.div(self.stride, rounding_mode="floor") == j.div(self.stride, rounding_mode="floor")
        return (own | (j % self.stride >= self.stride - self.summary))[None, None]


class Summaries(Pattern):
    """The pair (i, j) exists when j mod stride ≥ stride − summary: the columns of `Fixed` alone."""

    fields = ("stride", "summary")

    def __init__(self, stride: int, summary: int) -> None:
        _check("Summaries", stride, summary)
        self.stride = stride
        self.summary = summary

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        inside = (j % self.stride >= self.stride - self.summary) & (i == i)
        return inside[None, None]


def _check(name: str, stride: int, summary: int) -> None:
    need_count(f"{name}: stride", stride, at_least=1)
    need_count(f"{name}: summary", summary, at_least=0)
    if summary > stride:
        raise ValueError(f"{name}: summary must be at most stride ({stride}), got {summary}")
