"""The one call: any pattern, any weights, any normaliser, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ..kernels import reference
from ..normalizers import Normalizer, Softmax
from ..patterns import Full, Pattern
from ..weights import Bias, Weight
from . import again
from .checks import check_call, check_tensors, check_values, weights_as_tuple
from .dispatch import Backend, dense_pays, need_backend, say_once_that_it_is_dense
from .eager import attend, attend_again
from .encoding import Meaning
from .observed import observed, transformed
from .problems import Settings, dense_problem, has_term

__all__ = ["Call", "attention", "attention_map", "prepared"]

# What a call means that leaves them out. One of each: finding a layout is quicker for a pattern
# that was seen before than for its equal.
EVERY_PAIR = Full()
SOFTMAX = Softmax()


class Call:
    """A call, checked, with learned quantities in float32 (float64 for float64 inputs)."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings
    ) -> None:
        self.q, self.k, self.v = q, k, v
        self.meaning, self.settings = meaning, settings


def prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None = None,
    *,
    weight: Weight | Sequence[Weight] | None = None,
    normalizer: Normalizer | None = None,
    scale: float | None = None,
    key_padding: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> Call:
    """Checks a call's arguments, which are those of `attention`, and fills in what was left out."""
    q, k, v = _autocast(q, k, v)
    check_tensors(q, k, v)
    need_backend(backend)
    meaning = Meaning(
        EVERY_PAIR if pattern is None else pattern,
        weights_as_tuple(weight),
        SOFTMAX if normalizer is None else normalizer,
    )
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    check_call(q, k, v, meaning, scale, key_padding, dropout)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    meaning = Meaning(
        meaning.pattern,
        tuple([w if isinstance(w, Bias) else _in_dtype(w, wide) for w in meaning.weights]),
        _in_dtype(meaning.normalizer, wide),
    )
    return Call(q, k, v, meaning, Settings(float(scale), key_padding, float(dropout), None))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None = None,
    *,
    weight: Weight | Sequence[Weight] | None = None,
    normalizer: Normalizer | None = None,
    scale: float | None = None,
    key_padding: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend = "auto",
) -> Tensor:
    """Attention over the pairs that exist, at a cost that follows them.

        s = scale · q·kᵀ, then every weight in turn;  p = normaliser(s);  y = dropout(p) · v

    The pairs that exist are `pattern & (within reach | exempt)`: a weight with a reach cuts, but
    never pairs that it exempts. Positions are those of the keys, 0 … M−1; query row r sits at
    position r + M − N. A query without any pair gives 0, and gradient 0. Sums are kept in float32
    whatever the dtype. Gradients go to q, k, v and every learned tensor of the weights and the
    normaliser, also under `torch.func.grad`, `vjp` and `vmap`; a second derivative, and one in
    forward mode, raise.

    Args:
        q: queries `(B, H, N, D)`: float32, bfloat16, float16 or float64.
        k: keys `(B, Hk, M, D)`; H is a multiple of Hk (grouped queries). Any N, M and D.
        v: values `(B, Hk, M, Dv)`.
        pattern: which pairs exist; None is `Full()`.
        weight: how much a pair counts: a weight, or a list of them that act in turn.
        normalizer: scores to probabilities; None is `Softmax()`.
        scale: of q·k; None is 1/√D.
        key_padding: bool `(B, M)`, True for a real key; the others do not exist.
        dropout: share of the probabilities to drop, drawn from torch's generator; the same pairs
            for every backend.
        backend: `"auto"` takes the first that accepts the call; a named one never falls back.

    Returns:
        `(B, H, N, Dv)` in the dtype of q.

    Raises:
        TypeError: an argument is of the wrong kind or dtype.
        ValueError: sizes, devices or values do not fit, or no backend takes the call.
    """
    asked = again.key_of(q, k, v, pattern, weight, normalizer, scale, key_padding, dropout, backend)
    kept = None if asked is None else again.known(asked[0])
    if asked is not None and kept is not None:
        return attend_again(kept, q, k, v, asked[1])
    call = prepared(
        q,
        k,
        v,
        pattern,
        weight=weight,
        normalizer=normalizer,
        scale=scale,
        key_padding=key_padding,
        dropout=dropout,
        backend=backend,
    )
    q, k, v = call.q, call.k, call.v
    settings = call.settings
    if settings.dropout > 0:
        seed = torch.randint(2**63 - 1, (1,), device=q.device)
        settings = settings._replace(seed=seed)
    if backend == "auto" and not all(map(has_term, call.meaning.weights)):
        say_once_that_it_is_dense()
        backend = "reference"
    if (
        backend == "auto"
        and not torch.compiler.is_compiling()
        and dense_pays(q, k)
        and not observed()
    ):
        backend = "reference"
    if backend == "reference" and not q.is_meta:
        _refuse_transforms("attention: backend='reference'", "leave backend out")
        if q.device.type == "cpu" and not torch.compiler.is_compiling():
            check_values(call.meaning, q.shape[2], k.shape[2])
        # Sums are kept in float32 under autocast too.
        with torch.autocast(q.device.type, enabled=False):
            return reference.attend(q, k, v, dense_problem(q, k, call.meaning, settings))
    out = attend(q, k, v, call.meaning, settings, backend)
    if asked is not None:
        again.note(asked[0], q, k, v, call.meaning, settings, backend)
    return out


def attention_map(
    q: Tensor,
    k: Tensor,
    pattern: Pattern | None = None,
    *,
    weight: Weight | Sequence[Weight] | None = None,
    normalizer: Normalizer | None = None,
    scale: float | None = None,
    key_padding: Tensor | None = None,
) -> Tensor:
    """The weights themselves, dense, for looking at: float32 `(B, H, N, M)` with y = a·v before
    dropout.

    Arguments as for `attention`. Takes N·M memory, whatever the pattern.
    """
    call = prepared(
        q,
        k,
        k,
        pattern,
        weight=weight,
        normalizer=normalizer,
        scale=scale,
        key_padding=key_padding,
    )
    _refuse_transforms("attention_map", "compute it outside of them")
    if q.device.type == "cpu" and not torch.compiler.is_compiling():
        check_values(call.meaning, q.shape[2], k.shape[2])
    wide = torch.float64 if call.q.dtype == torch.float64 else torch.float32
    with torch.autocast(call.q.device.type, enabled=False):
        problem = dense_problem(call.q, call.k, call.meaning, call.settings)
        return reference.probabilities(call.q.to(wide), call.k.to(wide), problem)[0].float()


def _refuse_transforms(name: str, cure: str) -> None:
    """What is computed densely is plain PyTorch, but for products that transforms do not take."""
    if transformed():
        raise NotImplementedError(
            f"{name} takes no transforms of torch.func (grad, vjp, vmap, …): {cure}, or use "
            "torch.autograd.grad"
        )


def _autocast(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Under autocast all three take its dtype, as in PyTorch's own attention."""
    if not isinstance(q, Tensor) or q.is_meta or not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    cast = [
        x.to(dtype)
        if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
        else x
        for x in (q, k, v)
    ]
    return cast[0], cast[1], cast[2]


def _in_dtype(owner: Any, dtype: torch.dtype) -> Any:
    """A weight or normaliser whose learned tensors are in this dtype."""
    changed = owner
    for name in owner.learned:
        value = getattr(owner, name)
        if isinstance(value, Tensor) and value.dtype != dtype:
            if changed is owner:
                changed = copy(owner)
            setattr(changed, name, value.to(dtype))
    return changed
