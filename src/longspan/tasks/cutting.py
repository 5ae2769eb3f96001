"""Texts that are longer than a model reads: nothing is cut without a word."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

__all__ = ["say_cut"]


def say_cut(task: str, what: str, lengths: Sequence[int], most: int, setting: str) -> None:
    """Warns of texts of more tokens than a task reads of one.

    Args:
        what: the texts are.
        lengths: of them.
        most: tokens that are read.
        setting: what decides that, with its value.
    """
    longer = sum(length > most for length in lengths)
    if longer:
        warnings.warn(
            f"{task}: {longer:,} of {len(lengths):,} {what} have more tokens than {setting} leaves "
            "room for, and are cut at their end",
            stacklevel=4,
        )
