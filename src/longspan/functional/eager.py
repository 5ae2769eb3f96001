"""Attention outside of traced programs: straight to the kernels.

An operator takes a meaning as text and numbers, and `torch.library` wraps it in layers of its own;
on a GPU, and for short calls anywhere, both take longer than the kernels. A call that nobody traces
or transforms needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import passes
from .bare import Bare, bared, whole
from .encoding import Meaning, encode
from .ops import attention_backward_op, attention_op
from .problems import Settings

__all__ = ["attend", "observed", "plain"]

PLAIN = (Tensor, nn.Parameter)


def attend(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> Tensor:
    """Attention, by whichever way suits where the call is made; the numbers are the same."""
    if torch.compiler.is_compiling() or observed():
        return _by_operator(q, k, v, meaning, settings, backend)
    bare, learned, fixed = bared(meaning)
    tensors = (q, k, v, settings.key_padding, settings.seed, *learned, *fixed)
    if not plain(tensors):
        return _by_operator(q, k, v, meaning, settings, backend)
    if torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors]):
        kept = _Kept(bare, len(learned), settings.scale, settings.dropout, backend)
        return _Attention.apply((meaning, kept), *tensors)
    return passes.forward(q, k, v, meaning, settings, backend)[0]


def _by_operator(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> Tensor:
    encoded = encode(meaning)
    return attention_op(
        q,
        k,
        v,
        settings.key_padding,
        settings.seed,
        encoded.learned,
        encoded.fixed,
        encoded.ints,
        encoded.floats,
        encoded.text,
        settings.scale,
        settings.dropout,
        backend,
    )[0]


def observed() -> bool:
    """Does anything want to see the operator: a dispatch mode (fake tensors, `make_fx`, counters of
    FLOPs), a transform of `torch.func`, a tracer, or forward differentiation?
    """
    return (
        is_in_torch_dispatch_mode()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._is_tracing()
    )


def plain(tensors: Sequence[Tensor | None]) -> bool:
    """Are all of these tensors of PyTorch's own, not of a class that sees its operators?"""
    return all([x is None or type(x) in PLAIN for x in tensors])


class _Kept(NamedTuple):
    """What a backward needs besides tensors; `learned` is how many of those are."""

    bare: Bare
    learned: int
    scale: float
    dropout: float
    backend: str


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: tuple[Meaning, _Kept],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding: Tensor | None,
        seed: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        meaning, kept = call
        settings = Settings(kept.scale, key_padding, kept.dropout, seed)
        out, limits = passes.forward(q, k, v, meaning, settings, kept.backend)
        ctx.save_for_backward(q, k, v, key_padding, seed, out, limits, *tensors)
        ctx.kept = kept
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        q, k, v, key_padding, seed, out, limits, *tensors = ctx.saved_tensors
        bare, count, scale, dropout, backend = ctx.kept
        learned, fixed = tensors[:count], tensors[count:]
        wanted = list(ctx.needs_input_grad[6 : 6 + count])
        meaning = whole(bare, learned, fixed)
        # The operator says that it has no second derivative.
        if (
            torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or observed()
            or not plain((grad, q, k, v, *tensors))
        ):
            e = encode(meaning)
            found = attention_backward_op(
                *(grad, out, limits, q, k, v, key_padding, seed, learned, fixed),
                *(e.ints, e.floats, e.text, scale, dropout, backend, wanted),
            )
        else:
            settings = Settings(scale, key_padding, dropout, seed)
            found = passes.backward(
                grad, out, limits, q, k, v, meaning, settings, backend, learned, wanted
            )
        sums = iter(found[3:])
        to_learned = [next(sums) if want else None for want in wanted]
        return (None, *found[:3], None, None, *to_learned, *[None] * len(fixed))
