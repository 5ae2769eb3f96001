"""Matrix products in which a pair that does not exist adds nothing, not even 0·NaN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["all_finite", "over_seen"]


def all_finite(*tensors: Tensor) -> bool:
    """Are all numbers finite? (One number is read back; a sum that overflows counts as not finite, which is only slower.)"""
    total = sum(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)) for x in tensors)
    return math.isfinite(float(total))


def over_seen(p: Tensor, seen: Tensor, x: Tensor, *, finite: bool | None = None) -> Tensor:
    """p @ x over the pairs that are seen.

    Args:
        p: weights `(…, R, L)`, 0 where not seen.
        seen: bool, broadcasts with `p`.
        x: values `(…, L, D)`.
        finite: are all numbers of x known to be finite? None looks.
    """
    if all_finite(x) if finite is None else finite:
        return p @ x
    y = p @ torch.where(x.isfinite(), x, 0)
    ones = seen.expand(p.shape).to(p.dtype)
    for value, there in ((math.nan, x.isnan()), (math.inf, x == math.inf), (-math.inf, x == -math.inf)):
        y = torch.where(ones @ there.to(p.dtype) > 0, y + value, y)
    return y
