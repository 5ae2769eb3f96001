"""Sparsemax, 1.5-entmax and α-entmax as plain functions, on the compiled kernels where possible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import normalizers
from ..fixed_order import spread
from ..kernels import cpu
from ..kernels.cpu import rows as compiled
from ..normalizers.functions import checked_order
from .observed import transformed

__all__ = ["entmax", "entmax15", "sparsemax"]


def entmax(x: Tensor, alpha: float | Tensor, dim: int = -1) -> Tensor:
    """α-entmax along `dim`: argmax over p in the simplex of ⟨p, x⟩ + H_α(p), with Tsallis' entropy
    H_α.

    p_j = [(α−1)·x_j − τ]₊^(1/(α−1)); α = 1 is softmax, α = 2 sparsemax. float16 and bfloat16 are
    computed in float32. Entries of −inf get 0, and so does everything in a slice that has no other.

    Args:
        x: scores, floating, any shape.
        alpha: a number in [1, 2], or a tensor that broadcasts with `x` (of size 1 along `dim`),
            which gets a gradient.
        dim: the dim that sums to one.

    Reference:
        Peters, Niculae, Martins 2019 (arXiv 1905.05702); the gradient to α: Correia et al. 2019
        (arXiv 1909.00015).
    """
    order = checked_order(x, alpha, dim)
    if x.device.type != "cpu" or x.dtype == torch.float64 or not cpu.available():
        return normalizers.entmax(x, alpha, dim)
    if x.numel() == 0 or transformed():
        return normalizers.entmax(x, alpha, dim)
    moved = x.movedim(dim, -1).float()
    if order is None:
        alphas = torch.full(
            moved.shape[:-1], float(alpha), dtype=torch.float32, device=moved.device
        )
    else:
        shape = torch.broadcast_shapes(order.shape[:-1], moved.shape[:-1])
        moved = moved.expand(*shape, moved.shape[-1])
        alphas = spread(order[..., 0], tuple(shape))
    p = entmax_op(moved.reshape(-1, moved.shape[-1]), alphas.reshape(-1))
    return p.view(moved.shape).movedim(-1, dim).to(x.dtype)


def sparsemax(x: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax along `dim`: the point of the simplex nearest to x (Martins, Astudillo 2016, arXiv
    1602.02068).
    """
    return entmax(x, 2.0, dim)


def entmax15(x: Tensor, dim: int = -1) -> Tensor:
    """1.5-entmax along `dim`, between softmax and sparsemax (Peters et al., arXiv 1905.05702)."""
    return entmax(x, 1.5, dim)


@torch.library.custom_op("longspan::entmax", mutates_args=())
def entmax_op(x: Tensor, alphas: Tensor) -> Tensor:
    """α-entmax of rows `(rows, length)`, α `(rows,)`."""
    return compiled.entmax(x.contiguous(), alphas.contiguous())


@entmax_op.register_fake
def _(x: Tensor, alphas: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("longspan::entmax_backward", mutates_args=())
def entmax_backward_op(
    p: Tensor, g: Tensor, alphas: Tensor, wants_alpha: bool
) -> tuple[Tensor, Tensor]:
    """Gradients to the scores and to every row's α."""
    dx, to_alpha = compiled.entmax_backward(p, g.contiguous(), alphas.contiguous(), wants_alpha)
    return dx, to_alpha.to(alphas.dtype)


@entmax_backward_op.register_fake
def _(p: Tensor, g: Tensor, alphas: Tensor, wants_alpha: bool) -> tuple[Tensor, Tensor]:
    return p.new_empty(p.shape), alphas.new_empty(alphas.shape if wants_alpha else (0,))


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
    p, alphas = ctx.saved_tensors
    wants_alpha = ctx.needs_input_grad[1]
    dx, to_alpha = entmax_backward_op(p, g, alphas, wants_alpha)
    return dx, to_alpha if wants_alpha else None


entmax_op.register_autograd(_backward, setup_context=_setup)
