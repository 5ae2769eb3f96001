"""A row of the benchmark: a name for `--only`, and what it measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....measure import Size
from ..contenders import Bench
from ..records import Result

__all__ = ["Row", "size_fields"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Something to measure.

    Attributes:
        name: for `--only`.
        title: in one line.
        run: measures it.
        compiles: whether a peer compiles kernels for it, which takes longer than to measure them.
    """

    name: str
    title: str
    run: Callable[[Bench], Result]
    compiles: bool = False


def size_fields(size: Size) -> dict[str, int]:
    """A size for the record."""
    return {name: getattr(size, name) for name in ("batch", "heads", "length", "head_dim")}
