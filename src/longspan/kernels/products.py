"""Matrix products in which a pair that does not exist adds nothing, not even 0·NaN."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..once import once_differentiable

__all__ = ["all_finite", "collect", "meet", "over_seen"]


def all_finite(*tensors: Tensor) -> bool:
    """Are all numbers finite? (One number is read back; a sum that overflows counts as not finite,
    which is only slower.)
    """
    total = sum(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)) for x in tensors)
    return math.isfinite(float(total))


def over_seen(p: Tensor, seen: Tensor, x: Tensor, *, finite: bool | None = None) -> Tensor:
    """p @ x over the pairs that are seen.

    Args:
        p: weights `(…, R, L)`, 0 where not seen.
        seen: bool, broadcasts with `p`.
        x: values `(…, L, D)`.
        finite: are all numbers of x known to be finite? None looks, except in a traced program,
            which cannot.
    """
    if finite is None:
        finite = not torch.compiler.is_compiling() and all_finite(x)
    if finite:
        return p @ x
    y = p @ torch.where(x.isfinite(), x, 0)
    ones = seen.expand(p.shape).to(p.dtype)
    for value, there in (
        (math.nan, x.isnan()),
        (math.inf, x == math.inf),
        (-math.inf, x == -math.inf),
    ):
        y = torch.where(ones @ there.to(p.dtype) > 0, y + value, y)
    return y


def meet(q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
    """q @ kᵀ, `(…, R, L)`; what is not seen is 0 and has no gradient."""
    return _Meet.apply(q, k, seen)


def collect(p: Tensor, x: Tensor, seen: Tensor) -> Tensor:
    """p @ x over the pairs that are seen, `(…, R, D)`; what is not seen has no gradient."""
    return _Collect.apply(p, x, seen)


class _Meet(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, seen)
        return torch.where(seen, q @ k.transpose(-1, -2), 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, seen = ctx.saved_tensors
        g = torch.where(seen, g, 0)
        turned, seen_by = g.transpose(-1, -2), seen.transpose(-1, -2)
        return over_seen(g, seen, k), over_seen(turned, seen_by, q), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, x: Tensor, seen: Tensor) -> Tensor:
        ctx.save_for_backward(p, x, seen)
        return over_seen(p, seen, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        p, x, seen = ctx.saved_tensors
        to_p = torch.where(seen, g @ x.transpose(-1, -2), 0)
        return to_p, over_seen(p.transpose(-1, -2), seen.transpose(-1, -2), g), None
