"""What was compiled from patterns that hold tensors, kept for as long as these stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from torch import Tensor

from ..kinds import rebuilt
from ..patterns import Pattern
from ..remembering import Remembered
from .parts import Layout

__all__ = ["remembered"]

_LAYOUTS: Remembered[Layout] = Remembered()

Patterns = tuple[Pattern | None, ...]


def remembered(
    compiled: Callable[[Patterns], Layout],
    patterns: Patterns,
    rest: Hashable,
    *,
    stamp: Tensor | None,
) -> Layout:
    """What `compiled` makes of patterns, from the last time where their tensors are the same.

    Args:
        compiled: is given the patterns, with copies of their tensors.
        patterns: new objects around the same tensors are the same patterns.
        rest: what else the layout depends on.
        stamp: see `Remembered.found`.
    """
    tensors: list[Tensor] = []
    structure = _structure(patterns, tensors)
    if not _is_hashable(structure):
        return compiled(patterns)
    return _LAYOUTS.found(
        lambda own: compiled(_with_tensors(patterns, iter(own))),
        tensors,
        (structure, rest),
        stamp=stamp,
    )


def _structure(value: Any, tensors: list[Tensor]) -> Any:
    """A pattern, or a tuple, as nested tuples; its tensors are added to the list instead."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if isinstance(value, Pattern):
        return (type(value), *[_structure(own, tensors) for own in value.values()])
    if isinstance(value, tuple):
        return (tuple, *[_structure(own, tensors) for own in value])
    # With its class: True is not 1 here.
    return type(value), value


def _with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """A pattern, or a tuple, with these tensors in the place of its own; without any, itself."""
    if isinstance(value, Tensor):
        return next(tensors)
    if not isinstance(value, (Pattern, tuple)):
        return value
    given = value if isinstance(value, tuple) else value.values()
    own = [_with_tensors(each, tensors) for each in given]
    if all([new is old for new, old in zip(own, given, strict=True)]):
        return value
    return tuple(own) if isinstance(value, tuple) else rebuilt(type(value), own)


def _is_hashable(structure: Any) -> bool:
    """A pattern from elsewhere may have lists among its values."""
    try:
        hash(structure)
    except TypeError:
        return False
    return True
