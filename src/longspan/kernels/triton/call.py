"""What all launches of one call share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..problem import Problem
from . import chunks
from .arguments import (
    Drop,
    Given,
    Made,
    Numbers,
    WalkArguments,
    captured,
    terms_of,
    tile_size,
    vectors,
    walk_arguments,
)
from .keys import extents
from .launching import launch
from .reach import reaches_of

__all__ = ["Call", "fitted", "numbers", "power_of_2"]

Extents = tuple[Tensor, Tensor]


class Call:
    """A problem as its kernels take it.

    Attributes:
        problem: what is computed.
        layout: the pairs that exist before reaches cut, which the kernels do: that of a static
            pattern is the same in every call.
        walks: the layout's walks.
        given: what every kernel reads.
        constants: what every kernel is made for.
        summed: whose gradients are summed by rows.
        block: rows and keys of a tile at most.
    """

    def __init__(self, problem: Problem, wanted: frozenset[tuple[int, str]] = frozenset()) -> None:
        q, k, v = problem.q, problem.k, problem.v
        self.problem = problem
        self.batch, self.heads = q.shape[:2]
        self.layout = layout = problem.open_layout
        self.walks = [walk_arguments(w, self.heads, q.device) for w in layout.walks]
        cutting = problem.reaches if self.walks else ()
        terms, kinds, self.summed = terms_of(problem, wanted)
        seed = q if problem.seed is None else problem.seed
        least = int(problem.dropout * 2**32)
        self.each = self.heads // k.shape[1]
        self.given = Given(
            vectors(q),
            vectors(k),
            vectors(v),
            terms,
            reaches_of(cutting, q.device),
            Drop(seed, least, 1.0 / (1.0 - problem.dropout)),
            layout.m - layout.n,
            problem.scale,
            self.each,
        )
        self.block = _block(q)
        self.constants: dict[str, Any] = {
            "D": q.shape[3],
            "DV": v.shape[3],
            "PD": max(16, power_of_2(q.shape[3])),
            "PDV": max(16, power_of_2(v.shape[3])),
            "BM": self.block,
            "BN": self.block,
            "TERMS": kinds,
            "REACHES": tuple(reach.number for reach in cutting),
            "DROPOUT": problem.dropout > 0,
            "FACTORS": any(kind[0] == 2 for kind in kinds),
            "PRECISION": _precision(q),
        }

    def rows_of_tile(self, walk: WalkArguments) -> int:
        if not walk.indexed:
            return self.block
        return min(self.block, tile_size(walk.rows.length, walk.rows.order_batch))

    def grid(self, walk: WalkArguments) -> tuple[int, int]:
        """Tiles of a walk's rows, and samples times heads."""
        return -(-walk.rows.length // self.rows_of_tile(walk)), self.batch * walk.places

    def made(self, walk: WalkArguments, **more: Any) -> Made:
        """The constants of kernels for a walk."""
        own = {
            "BM": self.rows_of_tile(walk),
            "INDEXED": walk.indexed,
            "LISTED": walk.listed,
            "KINDS": fitted(walk.kinds, self.block),
            "PLAIN": _plain(walk.kinds),
        }
        return Made(**{**self.constants, **own, **more})

    def chunks(self, walk: WalkArguments) -> int:
        """Chunks of the keys of a walk; of one that gathers few rows several."""
        if not walk.indexed or walk.rows.length >= self.layout.n:
            return 1
        tiles, units = self.grid(walk)
        longest = max(part.length for part in walk.parts)
        return chunks.chunk_count(tiles * units, -(-longest // self.block))

    def firsts(self) -> list[bool]:
        """Which walks write every row of their heads before any other does; together they must
        write every row of every head, or none is first.
        """
        walks, merged = self.layout.walks, self.layout.merged
        if len(walks) == 1 and walks[0].heads is None:
            return [self.walks[0].rows.length == self.layout.n and not merged]
        found, seen, written = [], set[int](), set[int]()
        for own, walk in zip(walks, self.walks, strict=True):
            heads = set(range(self.heads) if own.heads is None else own.heads)
            first = walk.rows.length == self.layout.n and not heads & seen
            seen |= heads
            written |= heads if first else set()
            found.append(first)
        whole = len(written) == self.heads and not merged
        return [first and whole for first in found]

    def flags(self, grid: tuple[int, int]) -> Tensor:
        """A number for every program, which says whether it met a NaN."""
        return torch.empty(grid[0] * grid[1], dtype=torch.int32, device=self.problem.q.device)

    def extents(self, walk: WalkArguments, number: int) -> Extents:
        """For every tile of rows the keys that it meets in a part, two `(B · places, tiles)`; from
        the last time where no reach cuts it.
        """
        cut = any(walk.kinds[number][4] >> weight & 1 for weight in self.constants["REACHES"])
        key = (number, self.block, self.batch)
        known: Extents | None = None if cut else walk.kept.get(key)
        if known is None:
            known = self._new_extents(walk, number)
            if not cut and not captured(self.problem.q.device):
                walk.kept[key] = known
        return known

    def _new_extents(self, walk: WalkArguments, number: int) -> Extents:
        grid, device = self.grid(walk), self.problem.q.device
        kind = walk.kinds[number]
        low, high = (torch.empty(grid[::-1], dtype=torch.int32, device=device) for _ in range(2))
        # A list of tiles needs none.
        if not kind[3]:
            own = walk.rows, walk.parts[number], self.given.reaches
            launch(
                extents,
                grid,
                (*own, low, high, self.given.shift, walk.places),
                {
                    "BM": self.rows_of_tile(walk),
                    "INDEXED": walk.indexed,
                    "LISTED": walk.listed,
                    "KINDS": (kind,),
                    "REACHES": self.constants["REACHES"],
                },
            )
        return low, high


def power_of_2(count: int) -> int:
    """The first power of two that is not below a count; Triton's own takes microseconds."""
    return 1 << (count - 1).bit_length()


def fitted(kinds: tuple[tuple[int, ...], ...], most: int) -> tuple[tuple[int, ...], ...]:
    """Parts with so many keys in a tile at most."""
    return tuple((*kind[:6], min(kind[6], most)) for kind in kinds)


def numbers(x: Tensor) -> Numbers:
    return Numbers(x, x.stride(0), x.stride(1), x.stride(2))


def _block(q: Tensor) -> int:
    """Rows and keys of a tile; whole ones make up the tiles of a list."""
    # Products in true float32 are unrolled, not given to the tensor cores: larger ones take the
    # compiler minutes.
    unrolled = q.dtype == torch.float32 and q.device.type == "cuda" and _precision(q) == "ieee"
    return 32 if unrolled else 64


def _precision(q: Tensor) -> str:
    if q.dtype != torch.float32 or q.device.type != "cuda":
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _plain(kinds: tuple[tuple[int, ...], ...]) -> tuple[bool, ...]:
    """Parts whose inner tiles need no mask but that of keys."""
    return tuple(not (kind[0] or kind[2] or kind[3]) for kind in kinds)
