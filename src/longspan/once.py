"""Gradients that have none of their own, and say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor

__all__ = ["once_differentiable", "refuse_twice"]


def refuse_twice() -> NoReturn:
    """Says that there is no second derivative."""
    raise RuntimeError(
        "longspan: trying to differentiate twice; attention and its normalisers have first "
        "derivatives alone"
    )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Of an `autograd.Function`: its gradients raise when they are differentiated.

    Differs from PyTorch's, whose results do not know what they were computed from: asked for the
    gradient to such an input alone, autograd passes them by, and a part is missing silently.
    """

    @wraps(backward)
    def only_once(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return backward(ctx, *grads)
        with torch.no_grad():
            found = backward(ctx, *grads)
        known = [
            x for x in (*grads, *ctx.saved_tensors) if isinstance(x, Tensor) and x.requires_grad
        ]
        if not known:
            return found
        return tuple(None if x is None else _Once.apply(x, *known) for x in found)

    return only_once


class _Once(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, *known: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> NoReturn:
        refuse_twice()
