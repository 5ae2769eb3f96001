"""Checks of a call's arguments: shapes, dtypes and numbers always, the values of tensors where
reading them is free.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import broadcasts, describe, need_number, need_values
from ..normalizers import Normalizer
from ..patterns import Global, Pattern
from ..weights import Alibi, Bell, Ramp, Weight
from .encoding import Meaning

__all__ = ["check_call", "check_tensors", "check_values", "weights_as_tuple"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_tensors(q: Any, k: Any, v: Any) -> None:
    """Raises unless q, k and v fit together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {describe(x)}")
        if x.dim() != 4:
            raise ValueError(
                f"{name} must have shape (batch, heads, length, size), got {describe(x)}"
            )
        if x.dtype not in DTYPES:
            raise TypeError(
                f"{name} must be float32, bfloat16, float16 or float64, got {describe(x)}"
            )
    batch, heads, _, size = q.shape
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have the dtype of q, got {x.dtype} and {q.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, got {x.device} and {q.device}")
        if x.shape[0] != batch:
            raise ValueError(f"{name} must have the batch size of q, got {x.shape[0]} and {batch}")
    _, key_heads, length, key_size = k.shape
    for name, x, heads_of in (("q", q, heads), ("k", k, key_heads)):
        if heads_of == 0 or x.shape[3] == 0:
            raise ValueError(
                f"{name} must have a head at least, and a head size of at least 1, got "
                f"{describe(x)}"
            )
    if key_size != size:
        raise ValueError(f"k must have the head size of q, got {describe(k)} and {describe(q)}")
    if v.shape[1] != key_heads or v.shape[2] != length:
        raise ValueError(
            f"v must have the heads and length of k, got {describe(v)} and {describe(k)}"
        )
    if heads % key_heads != 0:
        raise ValueError(f"q must have a multiple of k's heads, got {heads} and {key_heads} heads")


def weights_as_tuple(weight: Any) -> tuple[Weight, ...]:
    """One weight, a list of them, or None, as a tuple."""
    if weight is None:
        return ()
    weights = tuple(weight) if isinstance(weight, (list, tuple)) else (weight,)
    for one in weights:
        if not isinstance(one, Weight):
            raise TypeError(
                f"weight must be a weight (longspan.weights) or a list, got {describe(one)}"
            )
    return weights


def check_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    meaning: Meaning,
    scale: Any,
    key_padding: Any,
    dropout: Any,
) -> None:
    """Raises unless the pattern, the weights and the rest fit q, k and v. Looks at no tensor's
    values.
    """
    batch, heads, n, d = q.shape
    m = k.shape[2]
    if not isinstance(meaning.pattern, Pattern):
        cure = "; a mask goes as Mask(mask)" if isinstance(meaning.pattern, Tensor) else ""
        raise TypeError(
            "pattern must be a pattern (longspan.patterns) or None, "
            f"got {describe(meaning.pattern)}{cure}"
        )
    if not isinstance(meaning.normalizer, Normalizer):
        raise TypeError(
            f"normalizer must be a normalizer (longspan.normalizers) or None, "
            f"got {describe(meaning.normalizer)}"
        )
    _check_pattern("pattern", meaning.pattern, batch, heads, n, m, q.device)
    for weight in meaning.weights:
        weight.check(batch, heads, n, m, d)
        for field in weight.learned:
            value = getattr(weight, field)
            if isinstance(value, Tensor) and value.device != q.device:
                _check_device(f"{type(weight).__name__}: {field}", value, q.device)
        if weight.exempt is not None:
            name = f"{type(weight).__name__}: exempt"
            _check_pattern(name, weight.exempt, batch, heads, n, m, q.device)
    alpha = meaning.normalizer.alpha
    if isinstance(alpha, Tensor):
        _check_device("normalizer: alpha", alpha, q.device)
        if not broadcasts(alpha.numel(), heads):
            raise ValueError(f"normalizer: alpha must have shape ({heads},), got {describe(alpha)}")
    need_number("scale", scale)
    if not -math.inf < scale < math.inf:
        raise ValueError(f"scale must be finite, got {scale}")
    need_number("dropout", dropout)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    if key_padding is not None:
        if not isinstance(key_padding, Tensor) or key_padding.dtype != torch.bool:
            raise TypeError(
                "key_padding must be a bool tensor, True for a real key, "
                f"got {describe(key_padding)}"
            )
        if key_padding.shape != (batch, m):
            raise ValueError(
                f"key_padding must have shape ({batch}, {m}), got {describe(key_padding)}"
            )
        _check_device("key_padding", key_padding, q.device)


def _check_pattern(
    name: str, pattern: Pattern, batch: int, heads: int, n: int, m: int, device: torch.device
) -> None:
    pattern.check(batch, heads, n, m)
    for tensor in pattern.tensors():
        if tensor.device != device:
            _check_device(f"{name} {pattern!r}", tensor, device)


def _check_device(name: str, value: Any, device: torch.device) -> None:
    if isinstance(value, Tensor) and value.device != device:
        raise ValueError(f"{name} must be on the device of q, {device}, got {value.device}")


def check_values(meaning: Meaning, n: int, m: int) -> None:
    """Raises when a tensor's values are outside of what they mean. On a GPU this waits for it."""
    for pattern in (meaning.pattern, *(w.exempt for w in meaning.weights)):
        if pattern is not None:
            _check_positions(pattern, n, m)
    for weight in meaning.weights:
        if isinstance(weight, Bell) and isinstance(weight.variance, Tensor):
            _check_above_zero("Bell: variance", weight.variance)
        if isinstance(weight, Ramp) and isinstance(weight.span, Tensor):
            need_values("Ramp: span must be finite", weight.span, weight.span.isfinite())
        if isinstance(weight, Alibi):
            need_values("Alibi: slopes must be finite", weight.slopes, weight.slopes.isfinite())
    alpha = meaning.normalizer.alpha
    if isinstance(alpha, Tensor):
        need_values("normalizer: alpha must be within [1, 2]", alpha, (alpha >= 1) & (alpha <= 2))


def _check_above_zero(name: str, value: Tensor) -> None:
    # One pass and no mask for what is fine; the lowest is NaN when any is.
    if value.numel() == 0 or value.detach().min().item() > 0:
        return
    need_values(f"{name} must be above 0", value, value > 0)


def _check_positions(pattern: Pattern, n: int, m: int) -> None:
    for child in pattern.children():
        _check_positions(child, n, m)
    if isinstance(pattern, Global):
        for name, value, size in pattern.named(n, m):
            if value.dtype != torch.bool:
                # Samples with fewer tokens than others fill their row up with −1.
                lowest = 0 if value.dim() == 1 else -1
                places = value.long()  # a size that their own dtype cannot hold would wrap round
                inside = (places >= lowest) & (places < size)
                need_values(f"{name} must be within [{lowest}, {size - 1}]", value, inside)
