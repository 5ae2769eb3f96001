"""Attention outside of traced programs: straight to the kernels.

An operator takes a meaning as text and numbers, and `torch.library` wraps it in layers of its own;
on a GPU, and for short calls anywhere, both take longer than the kernels. A call that nobody traces
or transforms needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import passes
from .again import Kept, note_backward
from .bare import bared, whole
from .encoding import Meaning, encode, tensors_of_patterns
from .observed import has_tangent, observed, plain, transformed
from .ops import attention_backward_op, attention_op, stamp_op
from .problems import Settings
from .transformed import attend_transformed, refuse_forward_mode

__all__ = ["attend", "attend_again"]


def attend(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> Tensor:
    """Attention, by whichever way suits where the call is made; the numbers are the same."""
    if torch.compiler.is_compiling() or observed() or q.is_meta:
        return _by_operator(q, k, v, meaning, settings, backend)
    bare, learned, fixed = bared(meaning)
    tensors = (q, k, v, settings.key_padding, settings.seed, *learned, *fixed)
    if not plain(tensors):
        return _by_operator(q, k, v, meaning, settings, backend)
    if torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors]):
        kept = Kept(bare, len(learned), settings.scale, settings.dropout, backend)
        return _Attention.apply((meaning, kept), *tensors)
    return passes.forward(q, k, v, meaning, settings, backend)[0]


def attend_again(kept: Kept, q: Tensor, k: Tensor, v: Tensor, learned: Sequence[Tensor]) -> Tensor:
    """Attention of a kind that there are notes on: see `again`."""
    inputs = (q, k, v, *learned)
    if torch.is_grad_enabled() and any([x.requires_grad for x in inputs]):
        return _Attention.apply((None, kept), q, k, v, None, None, *learned)
    assert kept.notes is not None
    return kept.notes.forward.play(inputs)[0]


def _by_operator(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> Tensor:
    if transformed():
        return attend_transformed(q, k, v, meaning, settings, backend)
    encoded = encode(meaning)
    if has_tangent((q, k, v, *encoded.learned)):
        refuse_forward_mode()
    stamp = None
    if torch.compiler.is_compiling():
        masks = tensors_of_patterns(meaning)
        masks += [] if settings.key_padding is None else [settings.key_padding]
        # The same ones in every layer make one stamp: the compiler finds that it is.
        stamp = stamp_op(masks) if masks else None
    return attention_op(
        q,
        k,
        v,
        settings.key_padding,
        settings.seed,
        stamp,
        encoded.learned,
        encoded.fixed,
        encoded.ints,
        encoded.floats,
        encoded.text,
        settings.scale,
        settings.dropout,
        backend,
    )[0]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: tuple[Meaning | None, Kept],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding: Tensor | None,
        seed: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        meaning, kept = call
        if meaning is None:
            assert kept.notes is not None
            out, limits = kept.notes.forward.play((q, k, v, *tensors))
        else:
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
        bare, count, scale, dropout, backend, notes = ctx.kept
        learned, fixed = tensors[:count], tensors[count:]
        wanted = list(ctx.needs_input_grad[6 : 6 + count])
        # The operator says that it has no second derivative.
        by_operator = (
            torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or observed()
            or not plain((grad, q, k, v, *tensors))
        )
        inputs = (q, k, v, out, limits, grad, *learned)
        played = None if by_operator or notes is None else notes.backward(inputs)
        if played is not None:
            found = passes.with_learned(played, learned, wanted)
        elif by_operator:
            e = encode(whole(bare, learned, fixed))
            found = attention_backward_op(
                *(grad, out, limits, q, k, v, key_padding, seed, None, learned, fixed),
                *(e.ints, e.floats, e.text, scale, dropout, backend, wanted),
            )
        else:
            meaning = whole(bare, learned, fixed)
            settings = Settings(scale, key_padding, dropout, seed)
            found = passes.backward(
                grad, out, limits, q, k, v, meaning, settings, backend, learned, wanted
            )
            if notes is not None:
                note_backward(notes, inputs, meaning, settings, backend)
        sums = iter(found[3:])
        to_learned = [next(sums) if want else None for want in wanted]
        return (None, *found[:3], None, None, *to_learned, *[None] * len(fixed))
