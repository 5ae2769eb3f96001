"""Sparsemax, 1.5-entmax and α-entmax as plain functions of a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import broadcasts, describe, need_int, need_number, need_values
from ..fixed_order import row_sum, summed_to
from ..once import once_differentiable
from ..remembering import all_plain
from .tsallis import above, alpha_gradient, exponential, score_gradient, threshold

__all__ = ["check_alpha", "checked_order", "entmax", "entmax15", "sparsemax"]


class _Entmax(torch.autograd.Function):
    """α-entmax over the last dim, with gradients to the scores and to a tensor α."""

    @staticmethod
    def forward(scores: Tensor, alpha: Tensor | None, fixed: float) -> Tensor:
        order: float | Tensor = fixed if alpha is None else alpha
        p = exponential(above(scores, threshold(scores, order)), order)
        total = row_sum(p, keepdim=True)
        return p / torch.where(total == 0, 1, total)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, alpha, ctx.fixed = inputs
        ctx.save_for_backward(output, alpha)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        p, alpha = ctx.saved_tensors
        order: float | Tensor = ctx.fixed if alpha is None else alpha
        to_scores = score_gradient(p, g, order) if ctx.needs_input_grad[0] else None
        to_alpha = None
        if alpha is not None and ctx.needs_input_grad[1]:
            to_alpha = summed_to(alpha_gradient(p, g, order)[..., None], alpha.shape)
        return to_scores, to_alpha, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, int | None, None],
        scores: Tensor,
        alpha: Tensor | None,
        fixed: float,
    ) -> tuple[Tensor, int]:
        # Another dim in front, which rows are of; thresholds are searched for by looking at values.
        in_front = [
            x if x is None else x[None] if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, alpha), in_dims[:2], strict=True)
        ]
        assert in_front[0] is not None
        whole = in_front[0].expand(info.batch_size, *in_front[0].shape[1:])
        return _Entmax.apply(whole, in_front[1], fixed), 0


def entmax(x: Tensor, alpha: float | Tensor, dim: int = -1) -> Tensor:
    """α-entmax along `dim`: argmax over p in the simplex of ⟨p, x⟩ + H_α(p), with Tsallis' entropy
    H_α.

    p_j = [(α−1)·x_j − τ]₊^(1/(α−1)); α = 1 is softmax, α = 2 sparsemax. Exact for a float α of 1.5
    or 2, by a safeguarded root search otherwise; float16 and bfloat16 are computed in float32.
    Entries of −inf get 0, and so does everything in a slice that has no other.

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
    if x.numel() == 0:
        return x.clone()
    wide = x if x.dtype == torch.float64 else x.float()
    fixed = 0.0 if isinstance(alpha, Tensor) else float(alpha)
    p = _Entmax.apply(wide.movedim(dim, -1), order, fixed)
    return p.movedim(-1, dim).to(x.dtype)


def checked_order(x: Tensor, alpha: float | Tensor, dim: int) -> Tensor | None:
    """Raises unless the arguments of `entmax` fit. Returns a tensor α with as many dims as x, with
    `dim` moved to the end and in the dtype of the computation; None when α is a number.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"entmax: x must be a floating tensor, got {describe(x)}")
    need_int("entmax: dim", dim)
    check_alpha("entmax: alpha", alpha)
    if x.dim() == 0 or not -x.dim() <= dim < x.dim():
        raise ValueError(f"entmax: dim must be within [{-x.dim()}, {x.dim() - 1}], got {dim}")
    if not isinstance(alpha, Tensor):
        return None
    order = alpha.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    order = order.reshape((1,) * (x.dim() - order.dim()) + tuple(order.shape))
    sizes = zip(order.shape, x.shape, strict=False)
    fits = order.dim() == x.dim() and all(broadcasts(a, b) or b == 1 for a, b in sizes)
    if not fits or order.shape[dim] != 1:
        raise ValueError(
            f"entmax: alpha must broadcast with x and have size 1 along dim {dim}, "
            f"got {describe(alpha)} for {describe(x)}"
        )
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and all_plain([alpha]):
        need_values("entmax: alpha must be within [1, 2]", alpha, (alpha >= 1) & (alpha <= 2))
    return order.movedim(dim, -1)


def sparsemax(x: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax along `dim`: the point of the simplex nearest to x (Martins, Astudillo 2016, arXiv
    1602.02068).
    """
    return entmax(x, 2.0, dim)


def entmax15(x: Tensor, dim: int = -1) -> Tensor:
    """1.5-entmax along `dim`, between softmax and sparsemax (Peters et al., arXiv 1905.05702)."""
    return entmax(x, 1.5, dim)


def check_alpha(name: str, alpha: Any) -> None:
    """Raises unless α is a number in [1, 2] or a floating tensor (whose values are checked where
    they are read).
    """
    if isinstance(alpha, Tensor):
        if not alpha.is_floating_point():
            raise TypeError(f"{name} must be a number or a floating tensor, got {describe(alpha)}")
        return
    need_number(name, alpha)
    if not 1 <= alpha <= 2:
        raise ValueError(f"{name} must be within [1, 2] (1 is softmax, 2 sparsemax), got {alpha}")
