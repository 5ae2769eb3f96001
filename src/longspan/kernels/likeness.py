"""What launches depend on of the tensors that they are given, besides shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

__all__ = ["Likeness", "alike"]


class Likeness(NamedTuple):
    """Of tensors in order: strides, bytes past a multiple of 16 at which they begin, and which is
    the first that each is one with.
    """

    strides: tuple[tuple[int, ...], ...]
    misaligned: tuple[int, ...]
    first: tuple[int, ...]


def alike(inputs: Sequence[Tensor]) -> Likeness:
    """How tensors lie in memory, and which of them are one."""
    names = [id(x) for x in inputs]
    return Likeness(
        tuple([x.stride() for x in inputs]),
        tuple([x.data_ptr() & 15 for x in inputs]),
        tuple(map(names.index, names)),
    )
