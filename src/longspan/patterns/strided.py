"""Every stride-th key."""

from __future__ import annotations

from torch import Tensor

from .base import Pattern, need_count

__all__ = ["Strided"]


class Strided(Pattern):
    """The pair (i, j) exists when (i − j) mod stride = 0.

    ```
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■      Strided(3)
    ■ · · ■ · ·
    · ■ · · ■ ·
    · · ■ · · ■
    ```

    Reference:
        Child et al. 2019, "Sparse Transformers" (arXiv 1904.10509). Theirs is `Causal() &
        Strided(l)`.
    """

    fields = ("stride",)

    def __init__(self, stride: int) -> None:
        need_count("Strided: stride", stride, at_least=1)
        self.stride = stride

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return ((i - j) % self.stride == 0)[None, None]
