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
from ..patterns import Pattern
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
    pattern = _opened(meaning.pattern, (), learned, fixed)
    weights = tuple([_opened(w, w.learned, learned, fixed) for w in meaning.weights])
    normalizer = _opened(meaning.normalizer, meaning.normalizer.learned, learned, fixed)
    return Bare(pattern, weights, normalizer), learned, fixed


def whole(bare: Bare, learned: Sequence[Tensor], fixed: Sequence[Tensor]) -> Meaning:
    """The meaning again, with these tensors in the place of those taken out."""
    if not learned and not fixed:
        return Meaning(*bare)
    to_learn, given = iter(learned), iter(fixed)
    return Meaning(
        _closed(bare.pattern, to_learn, given),
        tuple([_closed(weight, to_learn, given) for weight in bare.weights]),
        _closed(bare.normalizer, to_learn, given),
    )


def _opened(owner: Any, names: Sequence[str], learned: list[Tensor], fixed: list[Tensor]) -> Any:
    """An object, or a tuple, with holes where its tensors are, those of its fields `names` learned;
    itself when it has none.
    """
    is_tuple = isinstance(owner, tuple)
    values = list(owner) if is_tuple else [getattr(owner, name) for name in owner.fields]
    changed = False
    for place, value in enumerate(values):
        if isinstance(value, Tensor):
            learns = not is_tuple and owner.fields[place] in names
            (learned if learns else fixed).append(value)
            values[place] = _Hole.LEARNED if learns else _Hole.FIXED
            changed = True
        elif isinstance(value, (tuple, Pattern)):
            values[place] = _opened(value, (), learned, fixed)
            changed = changed or values[place] is not value
    return _Opened(tuple if is_tuple else type(owner), values) if changed else owner


def _closed(value: Any, learned: Iterator[Tensor], fixed: Iterator[Tensor]) -> Any:
    if not isinstance(value, _Opened):
        return value
    parts = list(value.values)
    for place, part in enumerate(parts):
        if part is _Hole.LEARNED:
            parts[place] = next(learned)
        elif part is _Hole.FIXED:
            parts[place] = next(fixed)
        elif isinstance(part, _Opened):
            parts[place] = _closed(part, learned, fixed)
    return tuple(parts) if value.kind is tuple else rebuilt(value.kind, parts)
