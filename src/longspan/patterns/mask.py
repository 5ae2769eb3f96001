"""Masks that come from elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import broadcasts, describe, need_tensor
from .base import Pattern

__all__ = ["Mask"]


class Mask(Pattern):
    """The pair (i, j) exists when a tensor says so.

    Args:
        allowed: bool `(B|1, H|1, N, M)`, True = the pair exists; query rows and keys as the call
            has them.
    """

    fields = ("allowed",)

    def __init__(self, allowed: Tensor) -> None:
        need_tensor("Mask: allowed", allowed, "bool", (4,))
        self.allowed = allowed

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        shape = tuple(self.allowed.shape)
        if (
            not broadcasts(shape[0], batch)
            or not broadcasts(shape[1], heads)
            or shape[2:] != (n, m)
        ):
            raise ValueError(
                f"Mask: allowed must have shape ({batch} or 1, {heads} or 1, {n}, {m}), "
                f"got {describe(self.allowed)}"
            )

    def heads_apart(self) -> int:
        return self.allowed.shape[1]

    def of_head(self, head: int) -> Pattern:
        return self if self.allowed.shape[1] == 1 else Mask(self.allowed[:, head : head + 1])

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        if self.allowed.shape[2:] != (n, m):
            raise ValueError(
                f"Mask: allowed is for other sizes than {n} × {m}: {describe(self.allowed)}"
            )
        if n == 0 or m == 0:
            shape = torch.broadcast_shapes(i.shape, j.shape)
            return torch.zeros((1, 1, *shape), dtype=torch.bool, device=i.device)
        return self.allowed[:, :, (i - (m - n)).clamp(0, n - 1), j.clamp(0, m - 1)]
