"""Windows: keys near the query, token by token or block by block."""

from __future__ import annotations

from torch import Tensor

from .base import Pattern, need_count

__all__ = ["BlockWindow", "Window"]


class Window(Pattern):
    """The pair (i, j) exists when j − i = δ·dilation for a whole δ with −left ≤ δ ≤ right.

    ```
    ■ ■ · · · ·
    ■ ■ ■ · · ·
    ■ ■ ■ ■ · ·      Window(2, 1)
    · ■ ■ ■ ■ ·
    · · ■ ■ ■ ■
    · · · ■ ■ ■
    ```

    Counts are inclusive: `Window(128, 128)` is 257 keys. A dilated window counts its own steps:
    `Window(2, 2, dilation=3)` is the keys i−6, i−3, i, i+3, i+6.

    Args:
        left: steps to the left, at least 0; None is unbounded.
        right: steps to the right, at least 0; None is unbounded.
        dilation: tokens a step, at least 1.

    Reference:
        Beltagy, Peters, Cohan 2020, "Longformer" (arXiv 2004.05150). Their w is two-sided: w = left
        + right.
    """

    fields = ("left", "right", "dilation")

    def __init__(self, left: int | None, right: int | None, dilation: int = 1) -> None:
        if left is not None:
            need_count("Window: left", left, at_least=0, most=" (None is unbounded)")
        if right is not None:
            need_count("Window: right", right, at_least=0, most=" (None is unbounded)")
        need_count("Window: dilation", dilation, at_least=1)
        self.left = left
        self.right = right
        self.dilation = dilation

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        offset = j - i
        inside = offset % self.dilation == 0
        if self.left is not None:
            inside = inside & (offset >= -self.left * self.dilation)
        if self.right is not None:
            inside = inside & (offset <= self.right * self.dilation)
        return inside[None, None]

    def __repr__(self) -> str:
        step = "" if self.dilation == 1 else f", dilation={self.dilation}"
        return f"Window({self.left}, {self.right}{step})"


class BlockWindow(Pattern):
    """The pair (i, j) exists when −left ≤ ⌊j/block⌋ − ⌊i/block⌋ ≤ right: whole blocks near the
    query's own.

    ```
    ■ ■ ■ ■ · ·
    ■ ■ ■ ■ · ·
    ■ ■ ■ ■ ■ ■      BlockWindow(2, 1, 1)
    ■ ■ ■ ■ ■ ■
    · · ■ ■ ■ ■
    · · ■ ■ ■ ■
    ```

    Args:
        block: tokens a block, at least 1.
        left: blocks to the left, at least 0.
        right: blocks to the right, at least 0.

    Reference:
        Zaheer et al. 2020, "Big Bird" (arXiv 2007.14062): w = 3 blocks is `BlockWindow(64, 1, 1)`.
    """

    fields = ("block", "left", "right")

    def __init__(self, block: int, left: int = 1, right: int = 1) -> None:
        need_count("BlockWindow: block", block, at_least=1)
        need_count("BlockWindow: left", left, at_least=0)
        need_count("BlockWindow: right", right, at_least=0)
        self.block = block
        self.left = left
        self.right = right

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        offset = j.div(self.block, rounding_mode="floor") - i.div(self.block, rounding_mode="floor")
        return ((offset >= -self.left) & (offset <= self.right))[None, None]
