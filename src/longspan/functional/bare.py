"""A meaning without its tensors: what the graph of a call keeps beside those that autograd saves.

Autograd notices when a tensor that it saved changes, lets hooks move it elsewhere, and frees it
after the backward; a meaning kept whole would hold the same tensors past all of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from torch import Tensor

from ..kinds import rebuilt
from ..normalizers import Normalizer
from ..patterns import Pattern
from ..weights import Weight
from .encoding import Meaning

__all__ = ["Bare", "bared", "whole"]


class _Hole(Enum):
    """Where a tensor was."""

    LEARNED = 0
    FIXED = 1


class _Opened(NamedTuple):
    """An object, or a tuple, with holes: its class and the values of its fields."""

    kind: type
    values: list[Any]


class Bare(NamedTuple):
    """A meaning whose tensors were taken out. Objects that had none are there as they came."""

    pattern: Any
    weights: tuple[Any, ...]
    normalizer: Any


def bared(meaning: Meaning) -> tuple[Bare, list[Tensor], list[Tensor]]:
    """A meaning without its tensors, the learned ones, and the fixed ones, in the order of the
    encoding.
    """
    learned: list[Tensor] = []
    fixed: list[Tensor] = []
    pattern = _opened(meaning.pattern, False, learned, fixed)
    weights = tuple([_opened(weight, False, learned, fixed) for weight in meaning.weights])
    return (
        Bare(pattern, weights, _opened(meaning.normalizer, False, learned, fixed)),
        learned,
        fixed,
    )


def whole(bare: Bare, learned: Sequence[Tensor], fixed: Sequence[Tensor]) -> Meaning:
    """The meaning again, with these tensors in the place of those taken out."""
    to_learn, given = iter(learned), iter(fixed)
    return Meaning(
        _closed(bare.pattern, to_learn, given),
        tuple([_closed(weight, to_learn, given) for weight in bare.weights]),
        _closed(bare.normalizer, to_learn, given),
    )


def _opened(value: Any, learns: bool, learned: list[Tensor], fixed: list[Tensor]) -> Any:
    """A value with holes where its tensors are; the value itself when it has none."""
    if isinstance(value, Tensor):
        (learned if learns else fixed).append(value)
        return _Hole.LEARNED if learns else _Hole.FIXED
    if isinstance(value, tuple):
        kind: type = tuple
        parts = [_opened(part, False, learned, fixed) for part in value]
        changed = any(isinstance(part, (_Hole, _Opened)) for part in parts)
    elif isinstance(value, (Pattern, Weight, Normalizer)):
        kind = type(value)
        names = () if isinstance(value, Pattern) else value.learned
        parts, changed = [], False
        for name in value.fields:
            part = getattr(value, name)
            if part is not None and not isinstance(part, (int, float, str)):
                part = _opened(part, name in names, learned, fixed)
                changed = changed or isinstance(part, (_Hole, _Opened))
            parts.append(part)
    else:
        return value
    return _Opened(kind, parts) if changed else value


def _closed(value: Any, learned: Iterator[Tensor], fixed: Iterator[Tensor]) -> Any:
    if value is _Hole.LEARNED:
        return next(learned)
    if value is _Hole.FIXED:
        return next(fixed)
    if not isinstance(value, _Opened):
        return value
    parts = [_closed(part, learned, fixed) for part in value.values]
    return tuple(parts) if value.kind is tuple else rebuilt(value.kind, parts)
