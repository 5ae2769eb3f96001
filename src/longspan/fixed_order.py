"""Sums in one fixed order: their bits depend neither on the number of threads nor on which part of
a GPU is done first.

PyTorch shares one long sum among threads, so its rounding follows their number; sums with many
results it does not share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .once import once_differentiable

__all__ = ["add_at", "lookup", "row_sum", "spread", "summed_to"]

# Far fewer numbers than PyTorch shares among threads.
AT_ONCE = 1024


def row_sum(x: Tensor, *, keepdim: bool = False) -> Tensor:
    """Σ over the last dim, long ones in steps of 64."""
    length = x.shape[-1]
    if length > AT_ONCE:
        whole = length // 64 * 64
        steps = x[..., :whole].unflatten(-1, (whole // 64, 64)).sum(-1)
        return row_sum(torch.cat([steps, x[..., whole:]], -1), keepdim=keepdim)
    return x.sum(-1, keepdim=keepdim)


def summed_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x summed to a shape that would broadcast to its own."""
    if math.prod(shape) == 1:
        return row_sum(x.flatten()).reshape(shape)
    return x.sum_to_size(shape)


def add_at(total: Tensor, index: Tensor, values: Tensor) -> None:
    """total[index] += values along dim 0, also where an index comes twice."""
    values = values.to(total.dtype)
    if total.is_cuda:
        total.index_put_((index,), values, accumulate=True)
    else:
        total.index_add_(0, index, values)


def spread(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x broadcast to a shape, with a gradient that is summed in a fixed order."""
    return _Spread.apply(x, shape)


def lookup(x: Tensor, index: Tensor) -> Tensor:
    """x[..., index], with a gradient that is summed in a fixed order."""
    return _Lookup.apply(x, index)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        ctx.shape = (1,) * (len(shape) - x.dim()) + tuple(x.shape)
        ctx.own = x.shape
        return x.expand(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return summed_to(g, ctx.shape).reshape(ctx.own), None


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return x[..., index]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        places = g.flatten(len(ctx.shape) - 1).movedim(-1, 0).flatten(1)
        total = places.new_zeros(ctx.shape[-1], places.shape[1])
        add_at(total, index.flatten(), places)
        return total.movedim(0, -1).reshape(ctx.shape), None
