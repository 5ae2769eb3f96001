"""New input for a trained model: what it reads of it, and what it says to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import describe
from .batch import Batch

__all__ = ["Inputs", "need_texts"]


class Inputs(NamedTuple):
    """Rows for a model, made of what someone gave.

    Attributes:
        rows: how many there are; a long text can have several.
        batch: rows of these numbers, side by side.
        predictions: what a model's outputs, by the rows' numbers, say to each that was given, in
            order, as JSON can hold it.
    """

    rows: int
    batch: Callable[[Sequence[int]], Batch]
    predictions: Callable[[Mapping[int, Any]], list[Any]]


def need_texts(record: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises unless a record has a text in each of these fields."""
    for name in names:
        if name not in record:
            there = ", ".join(map(repr, record)) or "none"
            raise ValueError(f"no field {name!r}; there are {there}")
        if not isinstance(record[name], str):
            raise ValueError(f"{name!r} must be a text, got {describe(record[name])}")
