"""Attention under the transforms of `torch.func`: `grad`, `vjp`, `jacrev`, `vmap`.

A transform wraps tensors, and takes functions alone that say apart what they compute and what they
keep; operators of `torch.library` do not. Below all transforms a call is one like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from ..once import refuse_twice
from . import passes
from .bare import Bare, bared, whole
from .encoding import Meaning, encode
from .observed import observed
from .ops import attention_backward_op, attention_op
from .problems import Settings

__all__ = ["attend_transformed", "refuse_forward_mode"]


def refuse_forward_mode() -> NoReturn:
    """Says that there is no derivative forwards."""
    raise NotImplementedError(
        "attention: it has no forward-mode derivative (torch.func.jvp, jacfwd, hessian, dual "
        "tensors); use torch.autograd.grad, or torch.func.grad, vjp or jacrev"
    )


# Not a tuple, which a transform would take apart to look for tensors.
@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What a call means, without its tensors, of which the first so many are learned."""

    bare: Bare
    learned: int
    scale: float
    dropout: float
    backend: str

    def meaning(self, tensors: Sequence[Tensor]) -> Meaning:
        return whole(self.bare, tensors[: self.learned], tensors[self.learned :])


# The compiler knows transforms in part; left to Python, they are right. It would take up the
# kernels that Python then runs, piece by piece.
@_disable_dynamo
def attend_transformed(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> Tensor:
    """Attention where transforms of `torch.func` are active."""
    bare, learned, fixed = bared(meaning)
    call = _Call(bare, len(learned), settings.scale, settings.dropout, backend)
    given = (q, k, v, settings.key_padding, settings.seed, *learned, *fixed)
    found: tuple[Tensor, Tensor] = _Transformed.apply(call, *given)
    return found[0]


class _Transformed(torch.autograd.Function):
    """Attention, and every row's threshold."""

    @staticmethod
    def forward(
        call: _Call,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding: Tensor | None,
        seed: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        meaning = call.meaning(tensors)
        if not observed():
            settings = Settings(call.scale, key_padding, call.dropout, seed)
            return passes.forward(q, k, v, meaning, settings, call.backend)
        e = encode(meaning)
        found: tuple[Tensor, Tensor] = attention_op(
            *(q, k, v, key_padding, seed, None, e.learned, e.fixed, e.ints, e.floats, e.text),
            *(call.scale, call.dropout, call.backend),
        )
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        call, *given = inputs
        ctx.call = call
        ctx.save_for_backward(*output, *given)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        out, limits, *given = ctx.saved_tensors
        needs = ctx.needs_input_grad[6 : 6 + ctx.call.learned]
        found = iter(_Gradients.apply(ctx.call, needs, grad, out, limits, *given))
        of_tokens = [next(found) for _ in range(3)]
        of_learned = [next(found) if need else None for need in needs]
        fixed = len(given) - 5 - ctx.call.learned
        return (None, *of_tokens, None, None, *of_learned, *[None] * fixed)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        refuse_forward_mode()

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: _Call, *given: Tensor | None) -> Any:
        return _mapped(
            *(partial(_Transformed.apply, call), info.batch_size, in_dims[1:], given, 4),
            folds=call.dropout == 0,
        )


class _Gradients(torch.autograd.Function):
    """Gradients of q, k, v, and of those learned tensors that are wanted."""

    @staticmethod
    def forward(
        call: _Call,
        wanted: tuple[bool, ...],
        grad: Tensor,
        out: Tensor,
        limits: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_padding: Tensor | None,
        seed: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        meaning, learned = call.meaning(tensors), list(tensors[: call.learned])
        if not observed():
            settings = Settings(call.scale, key_padding, call.dropout, seed)
            found = passes.backward(
                *(grad, out, limits, q, k, v, meaning, settings, call.backend, learned, wanted)
            )
        else:
            e = encode(meaning)
            found = attention_backward_op(
                *(grad, out, limits, q, k, v, key_padding, seed, None, e.learned, e.fixed),
                *(e.ints, e.floats, e.text, call.scale, call.dropout, call.backend, list(wanted)),
            )
        return tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> NoReturn:
        refuse_twice()

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        refuse_forward_mode()

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        call: _Call,
        wanted: tuple[bool, ...],
        *given: Tensor | None,
    ) -> Any:
        return _mapped(
            *(partial(_Gradients.apply, call, wanted), info.batch_size, in_dims[2:], given, 7),
            # What all examples share has a gradient for each of them.
            folds=call.dropout == 0 and not any(wanted),
        )


def _mapped(
    function: Callable[..., tuple[Tensor, ...]],
    count: int,
    dims: Sequence[int | None],
    given: Sequence[Tensor | None],
    sampled: int,
    *,
    folds: bool,
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """A function of tensors for so many examples, and where these are in its results.

    Examples become samples of one batch where that is what they are: where they share all tensors
    but the first ones, which have samples, and no other tells the samples of an example apart.
    Others are computed one after the other.

    Args:
        function: gives tensors that have samples.
        count: how many examples there are.
        dims: where each tensor has examples, None for the same tensor in all.
        given: the tensors.
        sampled: so many of them, the first ones, have samples.
        folds: may examples be samples of one batch?
    """
    moved = [
        x if x is None or dim is None else x.movedim(dim, 0)
        for x, dim in zip(given, dims, strict=True)
    ]
    first = moved[0]
    assert first is not None
    samples = first.shape[0 if dims[0] is None else 1]
    shared = all(dim is None for dim in dims[sampled:])
    if folds and shared and (samples == 1 or not any(x is not None for x in moved[sampled:])):
        one_batch = [
            x if x is None else (x.expand(count, *x.shape) if dim is None else x).flatten(0, 1)
            for x, dim in zip(moved[:sampled], dims, strict=False)
        ]
        found = [x.unflatten(0, (count, samples)) for x in function(*one_batch, *moved[sampled:])]
    else:
        each = [
            function(
                *[
                    x if x is None or dim is None else x[number]
                    for x, dim in zip(moved, dims, strict=True)
                ]
            )
            for number in range(count)
        ]
        found = [torch.stack(own) for own in zip(*each, strict=True)]
    return tuple(found), (0,) * len(found)
