"""Shares of the learned window, and what they get of a budget, on a GPU's kernels.

What they mean is written in torch beside the layer (`nn.learned_window`, `nn.budgets`), which also
computes all that the kernels do not take. As attention, both go straight to the kernels, and are
operators where somebody traces or watches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.triton import window as kernels
from ..kernels.triton.window import (
    LARGEST_EXPONENT,
    LONGEST,
    SHORTEST,
    Budget,
    left_to_torch,
)
from .observed import observed, plain, transformed

__all__ = [
    "LARGEST_EXPONENT",
    "LONGEST",
    "SHORTEST",
    "Budget",
    "left_to_torch",
    "takes_budget",
    "takes_network",
    "window_budget",
    "window_shares",
]


def takes_network(q: Tensor, w: Tensor, u: Tensor) -> bool:
    """Whether `window_shares` computes this: nothing that transforms of `torch.func` see, which
    take PyTorch's own operators.
    """
    return kernels.takes_network(q, w, u) and not transformed()


def takes_budget(x: Tensor) -> bool:
    """Whether `window_budget` computes this: likewise."""
    return kernels.takes_budget(x) and not transformed()


def window_shares(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """r = exp(uᵀ tanh(w q)), float32 `(B, H, N)`, where `takes_network`."""
    if torch.compiler.is_compiling() or observed() or not plain((q, w, u)):
        return shares_op(q, w, u)
    if torch.is_grad_enabled() and (q.requires_grad or w.requires_grad or u.requires_grad):
        found: Tensor = _Shares.apply(q, w, u)
        return found
    return kernels.shares_of(q, w, u)


def window_budget(
    shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget
) -> tuple[Tensor, Tensor, Tensor]:
    """What tokens get of a budget, where `takes_budget`; see `kernels.triton.factor.budgeted`. Only
    the first has a gradient.
    """
    if torch.compiler.is_compiling() or observed() or not plain((shares, real, whole)):
        out, capped, state = budget_op(shares, real, whole, *budget)
        return out, capped.detach(), state.detach()
    if torch.is_grad_enabled() and shares.requires_grad:
        found: tuple[Tensor, Tensor, Tensor] = _Budgeted.apply(shares, real, whole, budget)
        return found
    return kernels.budgeted(shares, real, whole, budget)


class _Shares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, w: Tensor, u: Tensor) -> Tensor:
        found = kernels.shares_of(q, w, u)
        ctx.save_for_backward(q, w, u, found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _share_gradients(ctx, grad, *ctx.saved_tensors)


class _Budgeted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, capped, state = kernels.budgeted(shares, real, whole, budget)
        ctx.save_for_backward(shares, real, whole, state)
        ctx.budget = budget
        ctx.mark_non_differentiable(capped, state)
        ctx.set_materialize_grads(False)
        return out, capped, state

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        found = None if grad is None else _budget_gradient(ctx, grad, *ctx.saved_tensors)
        return found, None, None, None


def _share_gradients(
    ctx: Any, grad: Tensor, q: Tensor, w: Tensor, u: Tensor, found: Tensor
) -> tuple[Tensor | None, ...]:
    wanted = to_q, to_w, to_u = tuple(ctx.needs_input_grad[:3])
    if _traced(grad, q, w, u):
        # The operator says that it has no second derivative.
        given = iter(shares_backward_op(grad, found, q, w, u, list(wanted)))
        of_q = next(given) if to_q else None
        sums = next(given) if to_w or to_u else None
    else:
        of_q, sums = kernels.share_gradients(q, w, u, found, grad, wanted)
    of_w = of_u = None
    if sums is not None:
        split = w.numel() if to_w else 0
        of_w = sums[:split].view(w.shape).to(w.dtype) if to_w else None
        of_u = sums[split:].view(u.shape).to(u.dtype) if to_u else None
    return of_q, of_w, of_u


def _budget_gradient(
    ctx: Any,
    grad: Tensor,
    shares: Tensor,
    real: Tensor | None,
    whole: Tensor | None,
    state: Tensor,
) -> Tensor:
    if _traced(grad, shares):
        found: Tensor = budget_backward_op(grad, state, shares, real, whole, *ctx.budget)
        return found
    return kernels.budget_gradient(shares, real, whole, ctx.budget, state, grad)


def _traced(*tensors: Tensor) -> bool:
    return (
        torch.is_grad_enabled() or torch.compiler.is_compiling() or observed() or not plain(tensors)
    )


@torch.library.custom_op("longspan::window_shares", mutates_args=())
def shares_op(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return kernels.shares_of(q, w, u)


@shares_op.register_fake
def _(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("longspan::window_shares_backward", mutates_args=())
def shares_backward_op(
    grad: Tensor, share: Tensor, q: Tensor, w: Tensor, u: Tensor, wanted: list[bool]
) -> list[Tensor]:
    """The gradient of q, and those of w and u in one: what is wanted of them."""
    to_q, to_w, to_u = wanted
    found = kernels.share_gradients(q, w, u, share, grad, (to_q, to_w, to_u))
    return [x for x in found if x is not None]


@shares_backward_op.register_fake
def _(
    grad: Tensor, share: Tensor, q: Tensor, w: Tensor, u: Tensor, wanted: list[bool]
) -> list[Tensor]:
    to_q, to_w, to_u = wanted
    found = [torch.empty_like(q)] if to_q else []
    if to_w or to_u:
        found.append(share.new_empty(w.numel() * to_w + u.numel() * to_u))
    return found


@torch.library.custom_op("longspan::window_budget", mutates_args=())
def budget_op(
    shares: Tensor,
    real: Tensor | None,
    whole: Tensor | None,
    mean: float,
    cap: float,
    squared: bool,
    most: float,
    start: float,
    width: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return kernels.budgeted(shares, real, whole, Budget(mean, cap, squared, most, start, width))


@budget_op.register_fake
def _(shares: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    out, capped = (shares.new_empty(shares.shape) for _ in range(2))
    return out, capped, shares.new_empty((shares.shape[0], 3), dtype=torch.float64)


@torch.library.custom_op("longspan::window_budget_backward", mutates_args=())
def budget_backward_op(
    grad: Tensor,
    state: Tensor,
    shares: Tensor,
    real: Tensor | None,
    whole: Tensor | None,
    mean: float,
    cap: float,
    squared: bool,
    most: float,
    start: float,
    width: float,
) -> Tensor:
    budget = Budget(mean, cap, squared, most, start, width)
    return kernels.budget_gradient(shares, real, whole, budget, state, grad)


@budget_backward_op.register_fake
def _(grad: Tensor, state: Tensor, shares: Tensor, *rest: Any) -> Tensor:
    return shares.new_empty(shares.shape)


def _keep_shares(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _shares_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _share_gradients(ctx, grad, *ctx.saved_tensors)


def _keep_budget(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3], output[2])
    ctx.budget = Budget(*inputs[3:])
    ctx.set_materialize_grads(False)


def _budget_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    found = None if grad is None else _budget_gradient(ctx, grad, *ctx.saved_tensors)
    return found, *[None] * 8


shares_op.register_autograd(_shares_backward, setup_context=_keep_shares)
budget_op.register_autograd(_budget_backward, setup_context=_keep_budget)
