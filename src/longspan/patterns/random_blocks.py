"""Random blocks, drawn once and kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ..errors import describe, need_int
from .base import Pattern, need_count

__all__ = ["Random"]

Table = tuple[tuple[int, ...], ...]


class Random(Pattern):
    """The pair (i, j) exists when the key block of j was drawn for the query block of i.

    The draw is made once for `length` positions, so training and evaluation, short inputs and long
    ones see one
    pattern: a shorter input uses the part of the table that exists, a longer one raises.

    Args:
        blocks: how many different key blocks each query block gets.
        block: tokens a block.
        seed: of the draw.
        length: positions that the table covers (a model passes its maximum). None draws for the
            call's own M.
        table: the draw itself, for each query block its key blocks (ints; a negative one is an
            empty place).
        beyond: draw only blocks that are more than so many away from the query's own; None draws
            any.
        ends: draw none of the first and last so many blocks.

    Reference:
        Zaheer et al. 2020, "Big Bird" (arXiv 2007.14062).
    """

    fields = ("blocks", "block", "seed", "length", "table", "beyond", "ends")

    def __init__(
        self,
        blocks: int,
        block: int = 64,
        seed: int = 0,
        length: int | None = None,
        table: Tensor | Sequence[Sequence[int]] | None = None,
        *,
        beyond: int | None = None,
        ends: int = 0,
    ) -> None:
        need_int("Random: blocks", blocks, at_least=1)
        need_count("Random: block", block, at_least=1)
        need_int("Random: seed", seed)
        if length is not None:
            need_int("Random: length", length, at_least=1)
        if beyond is not None:
            need_int("Random: beyond", beyond, at_least=0)
        need_int("Random: ends", ends, at_least=0)
        self.blocks = blocks
        self.block = block
        self.seed = seed
        self.table = None if table is None else _as_table(table)
        if self.table is not None and length is None:
            length = len(self.table) * block
        if self.table is not None and length is not None and len(self.table) * block < length:
            raise ValueError(
                f"Random: table has {len(self.table)} query blocks of {block}, "
                f"too few for length {length}"
            )
        self.length = length
        self.beyond = beyond
        self.ends = ends

    def table_for(self, m: int) -> Table:
        """For each query block its key blocks; the draw is the same whenever `length` is."""
        if self.length is not None and m > self.length:
            raise ValueError(
                f"Random: drawn for length {self.length}, but the input has {m} positions; "
                f"make the pattern with length={m} or more"
            )
        if self.table is not None:
            return self.table
        total = -(-(self.length or m) // self.block)
        return _draw(self.blocks, total, self.seed, self.beyond, self.ends)

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        if self.length is not None and m > self.length:
            self.table_for(m)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        rows = self.table_for(m)
        if not rows:
            shape = torch.broadcast_shapes(i.shape, j.shape)
            return torch.zeros((1, 1, *shape), dtype=torch.bool, device=i.device)
        width = max(1, *(len(row) for row in rows))
        padded = [[*row, *[-1] * (width - len(row))] for row in rows]
        # Small numbers, one column at a time: this is asked about every pair of a tile.
        columns = torch.tensor(padded, dtype=torch.int32, device=i.device).T.contiguous()
        query_block = i.div(self.block, rounding_mode="floor").clamp(0, len(rows) - 1)
        key_block = j.div(self.block, rounding_mode="floor").to(torch.int32)
        inside = columns[0][query_block] == key_block
        for column in columns[1:]:
            inside = inside | (column[query_block] == key_block)
        return (inside & (i >= 0))[None, None]

    def __repr__(self) -> str:
        shown = [f"blocks={self.blocks}, block={self.block}"]
        shown += [f"seed={self.seed}"] if self.table is None else ["table=…"]
        shown += [] if self.length is None else [f"length={self.length}"]
        shown += [] if self.beyond is None else [f"beyond={self.beyond}"]
        shown += [] if self.ends == 0 else [f"ends={self.ends}"]
        return f"Random({', '.join(shown)})"


@lru_cache(maxsize=32)
def _draw(blocks: int, total: int, seed: int, beyond: int | None, ends: int) -> Table:
    """Python's own generator: one draw for one seed, whatever torch's version or device."""
    source = random.Random(seed)
    found = []
    for own in range(total):
        keys: Sequence[int] = range(ends, total - ends)
        if beyond is not None:
            keys = [key for key in keys if abs(key - own) > beyond]
        found.append(tuple(source.sample(keys, min(blocks, len(keys)))))
    return tuple(found)


def _as_table(table: Tensor | Sequence[Sequence[int]]) -> Table:
    if isinstance(table, Tensor):
        if table.dim() != 2 or table.is_floating_point() or table.dtype == torch.bool:
            raise TypeError(
                f"Random: table must be an int tensor (query blocks, drawn), got {describe(table)}"
            )
        table = table.tolist()
    if not isinstance(table, (list, tuple)) or not all(isinstance(r, (list, tuple)) for r in table):
        raise TypeError(
            f"Random: table must hold a list of ints a query block, got {describe(table)}"
        )
    rows = tuple(tuple(row) for row in table)
    for row in rows:
        for entry in row:
            need_int("Random: table entries", entry)
    return rows
