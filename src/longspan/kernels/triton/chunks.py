"""Into how many chunks the work of too few programs is split, and where chunks leave their sums.

The count follows from shapes alone: it is known without waiting for a GPU, and the same again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .arguments import Numbers, Vectors, vectors

__all__ = ["OutputSums", "QuerySums", "chunk_count", "output_sums", "query_sums"]

# Programs that a large GPU runs at once, or nearly.
PROGRAMS = 512
# A chunk has at least so many tiles: less is sooner done than put together again.
LEAST_TILES = 4
MOST_CHUNKS = 16


def chunk_count(programs: int, tiles: int) -> int:
    """Chunks for each of some programs that walk over so many tiles."""
    wanted = min(PROGRAMS // max(programs, 1), tiles // LEAST_TILES, MOST_CHUNKS)
    return 1 << max(wanted, 1).bit_length() - 1


class OutputSums(NamedTuple):
    """What chunks of keys leave for `join_outputs`."""

    sums: Vectors
    top: Numbers
    total: Numbers


class QuerySums(NamedTuple):
    """What chunks of keys leave for `join_query_gradients`; the mean gradient's numerator and
    denominator for one another.
    """

    sums: Vectors
    weights: tuple[Numbers, ...]
    over: Numbers
    under: Numbers


def output_sums(like: Tensor, units: int, length: int, channels: int) -> OutputSums:
    top, total = (_numbers(like, units, length) for _ in range(2))
    return OutputSums(_vectors(like, units, length, channels), top, total)


def query_sums(like: Tensor, units: int, length: int, channels: int, weights: int) -> QuerySums:
    over, under, *own = (_numbers(like, units, length) for _ in range(2 + weights))
    return QuerySums(_vectors(like, units, length, channels), tuple(own), over, under)


def _vectors(like: Tensor, units: int, length: int, channels: int) -> Vectors:
    return vectors(like.new_empty(1, units, length, channels, dtype=torch.float32))


def _numbers(like: Tensor, units: int, length: int) -> Numbers:
    return Numbers(like.new_empty(1, units, length, dtype=torch.float32), 0, length, 1)
