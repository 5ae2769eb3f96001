"""Launches the kernels of biases' gradients: for each bias, walk and part one.

Sums that one entry takes from many pairs are made in chunks, which are added in one fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from ...fixed_order import row_sum
from ..problem import BiasTerm, DistanceTerm, Problem, Term
from .arguments import Numbers, PartValues, Vectors, WalkArguments
from .biases import key_gradients_of_bias, pair_gradients
from .configs import options
from .distances import distance_gradients

__all__ = ["BiasGradients"]

# Programs that keep a GPU busy; sums are cut into chunks until there are so many, or MOST_CHUNKS.
ENOUGH_PROGRAMS = 1024
MOST_CHUNKS = 16
# Memory for the tables that programs sum into.
TABLE_BYTES = 64 << 20
# Tile bounds that a program reads at once.
MOST_SCANNED = 1024

Ranges = tuple[Tensor, Tensor]


class BiasGradients:
    """The gradients of `Bias` and `DistanceBias` of one call.

    Args:
        problem: what was computed.
        walks: its walks.
        constants: what its kernels are made for.
        inputs: q, k, v, the gradient of the output, log-sum-exp and mean gradient of the rows.
        rest: weights, reaches, dropout, and the first query's position.
        ranges: gives for every tile of a part's rows the keys that it meets, two
            `(B · places, tiles)`.
    """

    def __init__(
        self,
        problem: Problem,
        walks: list[WalkArguments],
        constants: dict[str, Any],
        inputs: tuple[Vectors | Numbers, ...],
        rest: tuple[Any, ...],
        ranges: Callable[[WalkArguments, int], Ranges],
    ) -> None:
        self.problem, self.walks = problem, walks
        self.inputs, self.rest, self.ranges = inputs, rest, ranges
        self.batch, self.heads = problem.q.shape[:2]
        self.constants = constants
        self.block: int = constants["BM"]
        self.scaling = (problem.scale, self.heads // problem.k.shape[1])

    def of(self, wanted: frozenset[tuple[int, str]]) -> dict[tuple[int, str], Tensor]:
        """Those that are wanted, less those that the queries' kernel sums by rows."""
        found = {}
        for which, term in enumerate(self.problem.terms):
            if isinstance(term, BiasTerm) and (term.number, "tensor") in wanted:
                if term.tensor.shape[3] > 1:
                    own = self._pairs if term.tensor.shape[2] > 1 else self._keys
                    found[term.number, "tensor"] = own(which, term)
            elif isinstance(term, DistanceTerm) and (term.number, "table") in wanted:
                found[term.number, "table"] = self._table(which, term)
        return found

    def _parts(self, term: Term) -> list[tuple[WalkArguments, int, PartValues, tuple[int, ...]]]:
        """The parts on which a weight acts, less those without rows or keys."""
        return [
            (walk, number, part, kind)
            for walk in self.walks
            for number, (part, kind) in enumerate(zip(walk.parts, walk.kinds, strict=True))
            if (kind[4] >> term.number) & 1 and self.batch * walk.rows.length * part.length
        ]

    def _settings(
        self, name: str, which: int, walk: WalkArguments, kind: tuple[int, ...]
    ) -> dict[str, Any]:
        own = {"INDEXED": walk.indexed, "LISTED": walk.listed, "KINDS": (kind,), "WHICH": which}
        found = options(name, self.constants, self.problem.q.element_size())
        return {**self.constants, **own, **found}

    def _tiles(self, length: int) -> int:
        return triton.cdiv(length, self.block)

    def _pairs(self, which: int, term: BiasTerm) -> Tensor:
        """The gradient `(B|1, H|1, N, M)` of a bias of that shape."""
        total = torch.zeros(term.tensor.shape, dtype=torch.float32, device=term.tensor.device)
        per_sample, per_head = (size > 1 for size in total.shape[:2])
        batch, head, row, _ = total.stride()
        to = Numbers(total, batch if per_sample else 0, head if per_head else 0, row)
        for walk, number, part, kind in self._parts(term):
            tiles = self._tiles(walk.rows.length)
            count = tiles * self._tiles(part.length)
            if kind[3]:
                count = len(part.columns) * (64 // self.block) ** 2
            low, high = (x.view(self.batch, walk.places, tiles) for x in self.ranges(walk, number))
            if not per_head:
                low, high = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
            # Where a sample has its own order, its tiles are not those of another.
            alone = not per_sample and bool(walk.rows.order_batch or part.order_batch)
            if not per_sample and not alone:
                low, high = low.amin(0, keepdim=True), high.amax(0, keepdim=True)
            for first in range(self.batch) if alone else (0,):
                own = slice(first, first + 1) if alone else slice(None)
                bounds = low[own].contiguous(), high[own].contiguous()
                samples = 1 if per_sample or alone else self.batch
                own_places, places = (walk.places, 1) if per_head else (1, walk.places)
                pair_gradients[count, bounds[0].shape[0] * own_places](
                    *self.inputs,
                    to,
                    *bounds,
                    walk.rows,
                    part,
                    *self.rest,
                    *self.scaling,
                    tiles,
                    first,
                    samples,
                    own_places,
                    places,
                    **self._settings("pairs", which, walk, kind),
                )
        return total

    def _keys(self, which: int, term: BiasTerm) -> Tensor:
        """The gradient of a bias `(B|1, H|1, 1, M)`, for every sample and head."""
        m = self.problem.k.shape[2]
        shape = (MOST_CHUNKS, self.batch, self.heads, m)
        total = torch.zeros(shape, dtype=torch.float32, device=term.tensor.device)
        to = Numbers(total, total.stride(1), total.stride(2), 1)
        for walk, number, part, kind in self._parts(term):
            tiles, units = self._tiles(walk.rows.length), self.batch * walk.places
            programs = self._tiles(part.length), units
            chunks = triton.cdiv(ENOUGH_PROGRAMS, programs[0] * units)
            key_gradients_of_bias[(*programs, min(chunks, MOST_CHUNKS, tiles))](
                *self.inputs,
                to,
                *self.ranges(walk, number),
                walk.rows,
                part,
                *self.rest,
                *self.scaling,
                tiles,
                walk.places,
                total.stride(0),
                **self._settings("sums", which, walk, kind),
                SCAN=min(triton.next_power_of_2(tiles), MOST_SCANNED),
            )
        return total.sum(0, dtype=torch.float64)[:, :, None]

    def _table(self, which: int, term: DistanceTerm) -> Tensor:
        """The gradient `(H, L)` of a table, for every head."""
        length, device = term.table.shape[1], term.table.device
        total = torch.zeros(self.heads, length, dtype=torch.float64, device=device)
        for walk, _, part, kind in self._parts(term):
            tiles, units = self._tiles(walk.rows.length), self.batch * walk.places
            wide = triton.cdiv(ENOUGH_PROGRAMS, units)
            each = triton.cdiv(tiles, wide)
            row_chunks = triton.cdiv(tiles, each)
            key_chunks = min(triton.cdiv(wide, row_chunks), MOST_CHUNKS, self._tiles(part.length))
            chunks, apart = row_chunks * key_chunks, 1
            if walk.indexed or kind[0]:
                apart = self.block
                while apart > 1 and 4 * units * chunks * apart * length > TABLE_BYTES:
                    apart //= 2
            shape = (self.batch, walk.places, chunks, apart, length)
            tables = torch.zeros(shape, dtype=torch.float32, device=device)
            distance_gradients[chunks, units](
                *self.inputs,
                tables,
                walk.rows,
                part,
                *self.rest,
                *self.scaling,
                tiles,
                walk.places,
                each,
                key_chunks,
                **self._settings("sums", which, walk, kind),
                APART=apart,
            )
            found = row_sum(tables.permute(1, 4, 0, 2, 3).flatten(2).double())
            heads = walk.rows.heads.long() if walk.listed else slice(None)
            total[heads] = total[heads] + found
        return total
