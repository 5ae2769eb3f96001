"""No query looks ahead."""

from __future__ import annotations

from torch import Tensor

from .base import Pattern

__all__ = ["Causal"]


class Causal(Pattern):
    """The pair (i, j) exists when j ≤ i.

    ```
    ■ · · · · ·
    ■ ■ · · · ·
    ■ ■ ■ · · ·
    ■ ■ ■ ■ · ·
    ■ ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■ ■
    ```

    With more queries than keys the first queries sit at negative positions and see nothing.
    """

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (j <= i)[None, None]
