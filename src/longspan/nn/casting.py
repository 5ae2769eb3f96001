"""Under autocast: what several projections read is cast once for all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional.observed import PLAIN, observed

__all__ = ["cast_once"]


def cast_once(x: Tensor, times: int) -> tuple[Tensor, ...]:
    """`x` for as many products, as autocast would hand it to each of them.

    Autocast casts what it is given for every product anew, keeps all copies for the backward, and
    turns every gradient back by itself before they are added. Here there is one copy; gradients are
    still added in the dtype of `x`. A compiler joins such casts itself.
    """
    kind = x.device.type
    if (
        type(x) not in PLAIN
        or x.dtype != torch.float32
        or x.is_meta
        or torch.compiler.is_compiling()
        or observed()
        or not torch.is_autocast_enabled(kind)
    ):
        return (x,) * times
    dtype = torch.get_autocast_dtype(kind)
    if dtype == x.dtype:
        return (x,) * times
    if not (torch.is_grad_enabled() and x.requires_grad):
        return (x.to(dtype),) * times
    found: tuple[Tensor, ...] = _CastOnce.apply(x, dtype, times)
    return found


class _CastOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, times: int) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        ctx.set_materialize_grads(False)
        cast = x.to(dtype)
        return tuple(cast.view_as(cast) for _ in range(times))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None, None]:
        there = [grad for grad in grads if grad is not None]
        if not there:
            return None, None, None
        total = there[0].to(ctx.dtype)
        for grad in there[1:]:
            total += grad
        return total, None, None
