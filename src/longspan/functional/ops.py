"""Attention as operators of `torch.library`: what `torch.compile` and `torch.export` see.

The operators take tensors, numbers and a text that gives the structure of the call (`encoding`).
The layout is compiled inside, where sizes are plain numbers: a traced program holds for any length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.problem import limits_dtype
from ..remembering import Remembered, are_lasting
from . import passes
from .encoding import decode
from .problems import Settings

__all__ = ["attention_backward_op", "attention_op", "stamp_op"]

# What is kept from call to call (layouts, what kernels are told of them) would lie in the memory of
# a graph that torch's compiler records, and a stamp be the same in every replay: it records what is
# around these. Graphs that are recorded by hand hold them as well.
BETWEEN_GRAPHS = (torch.Tag.cudagraph_unsafe,)


_STAMPS: Remembered[Tensor] = Remembered()


def _new_stamp(device: torch.device) -> Tensor:
    return torch.empty(1, dtype=torch.uint8, device=device)


@torch.library.custom_op("longspan::stamp", mutates_args=(), tags=BETWEEN_GRAPHS)
def stamp_op(tensors: list[Tensor]) -> Tensor:
    """A new tensor for these as they are now: whoever is given it again is given them again. What
    a program computes may come to lie where something else was, in the same object, and its
    version does not say so. Of tensors that it is given, and that stay, it is the same every time.
    """
    device = tensors[0].device
    if not are_lasting(tensors):
        return _new_stamp(device)
    return _STAMPS.found(lambda _: _new_stamp(device), tensors, None)


@stamp_op.register_fake
def _(tensors: list[Tensor]) -> Tensor:
    return _new_stamp(tensors[0].device)


def _stamped(stamp: Tensor | None, q: Tensor) -> Tensor | None:
    """The stamp of a call's masks. Without one they are never known again, but on a CPU, where
    their values are compared.
    """
    if stamp is not None or q.device.type == "cpu":
        return stamp
    return _new_stamp(q.device)


@torch.library.custom_op("longspan::attention", mutates_args=(), tags=BETWEEN_GRAPHS)
def attention_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_padding: Tensor | None,
    seed: Tensor | None,
    stamp: Tensor | None,
    learned: list[Tensor],
    fixed: list[Tensor],
    ints: list[int],
    floats: list[float],
    text: str,
    scale: float,
    dropout: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Attention, and every row's threshold, which its backward needs."""
    meaning = decode(text, learned, fixed, ints, floats)
    settings = Settings(scale, key_padding, dropout, seed, _stamped(stamp, q))
    return passes.forward(q, k, v, meaning, settings, backend)


@attention_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=limits_dtype(q))


@torch.library.custom_op("longspan::attention_backward", mutates_args=(), tags=BETWEEN_GRAPHS)
def attention_backward_op(
    grad: Tensor,
    out: Tensor,
    limits: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_padding: Tensor | None,
    seed: Tensor | None,
    stamp: Tensor | None,
    learned: list[Tensor],
    fixed: list[Tensor],
    ints: list[int],
    floats: list[float],
    text: str,
    scale: float,
    dropout: float,
    backend: str,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of q, k, v, and of those learned tensors that are wanted."""
    meaning = decode(text, learned, fixed, ints, floats)
    settings = Settings(scale, key_padding, dropout, seed, _stamped(stamp, q))
    found = passes.backward(grad, out, limits, q, k, v, meaning, settings, backend, learned, wanted)
    # Traced programs know how these lie in memory; kernels may have ways of their own.
    like = [_laid_out_as(x, given) for x, given in zip(found[:3], (q, k, v), strict=True)]
    return like + [x.contiguous() for x in found[3:]]


def _laid_out_as(gradient: Tensor, given: Tensor) -> Tensor:
    """A gradient in the order of memory in which a copy of `given` would be."""
    if gradient.stride() == given.stride():
        return gradient
    wanted = torch.empty_like(given, device="meta").stride()
    if gradient.stride() == wanted:
        return gradient
    moved = torch.empty_strided(given.shape, wanted, dtype=gradient.dtype, device=gradient.device)
    return moved.copy_(gradient)


@attention_backward_op.register_fake
def _(
    grad: Tensor, out: Tensor, limits: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> list[Tensor]:
    learned, wanted = rest[3], rest[-1]
    found = [torch.empty_like(x) for x in (q, k, v)]
    return found + [x.new_empty(x.shape) for x, want in zip(learned, wanted, strict=True) if want]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, key_padding, seed, stamp, learned, fixed, *rest = inputs
    ctx.save_for_backward(q, k, v, key_padding, seed, stamp, *output, *learned, *fixed)
    ctx.counts = (len(learned), len(fixed))
    ctx.rest = rest
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    q, k, v, key_padding, seed, stamp, out, limits, *lists = ctx.saved_tensors
    learned, fixed = lists[: ctx.counts[0]], lists[ctx.counts[0] :]
    wanted = list(ctx.needs_input_grad[6]) if learned else []
    # An empty list counts as one of tensors, whatever it could have held.
    none: list[Any] = [[] if value == [] else None for value in ctx.rest]
    if grad is None:
        return (*[None] * 6, [None] * len(learned), [None] * len(fixed), *none)
    found = attention_backward_op(
        grad, out, limits, q, k, v, key_padding, seed, stamp, learned, fixed, *ctx.rest, wanted
    )
    rest = iter(found[3:])
    to_learned = [next(rest) if want else None for want in wanted]
    return (*found[:3], None, None, None, to_learned, [None] * len(fixed), *none)


attention_op.register_autograd(_backward, setup_context=_setup)
