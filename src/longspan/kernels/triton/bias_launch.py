"""Launches the kernels of biases' gradients: for each bias, walk and part one.

Sums that one entry takes from many pairs are made in chunks, which are added in one fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...fixed_order import row_sum
from ..problem import BiasTerm, DistanceTerm, Term
from .arguments import Numbers, PartValues, Vectors, WalkArguments
from .biases import key_gradients_of_bias, pair_gradients
from .call import Call, power_of_2
from .configs import options
from .distances import distance_gradients
from .launching import launch

__all__ = ["BiasGradients"]

# Programs that keep a GPU busy; sums are cut into chunks until there are so many, or MOST_CHUNKS.
ENOUGH_PROGRAMS = 1024
MOST_CHUNKS = 16
# Memory for the tables that programs sum into.
TABLE_BYTES = 64 << 20
# Tile bounds that a program reads at once.
MOST_SCANNED = 1024


class BiasGradients:
    """The gradients of `Bias` and `DistanceBias` of one call.

    Args:
        call: what was computed.
        read: the gradient of the output, log-sum-exp and mean gradient of the rows.
    """

    def __init__(self, call: Call, read: tuple[Vectors, Numbers, Numbers]) -> None:
        self.call, self.problem = call, call.problem
        self.batch, self.heads = call.batch, call.heads
        self.inputs = (call.given, *read)

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
            for walk in self.call.walks
            for number, (part, kind) in enumerate(zip(walk.parts, walk.kinds, strict=True))
            if (kind[4] >> term.number) & 1 and self.batch * walk.rows.length * part.length
        ]

    def _settings(
        self, name: str, which: int, walk: WalkArguments, kind: tuple[int, ...]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """The constants of a kernel, and its launch options."""
        made = self.call.made(walk, KINDS=(kind,), PLAIN=())
        found = options(name, made, self.problem.q.element_size())
        # A bias is a weight.
        return {"WHICH": which, "MADE": made}, found | {"enable_fp_fusion": False}

    def _key_tiles(self, part: PartValues) -> int:
        return -(-part.length // self.call.block)

    def _pairs(self, which: int, term: BiasTerm) -> Tensor:
        """The gradient `(B|1, H|1, N, M)` of a bias of that shape."""
        total = torch.zeros(term.tensor.shape, dtype=torch.float32, device=term.tensor.device)
        per_sample, per_head = (size > 1 for size in total.shape[:2])
        batch, head, row, _ = total.stride()
        to = Numbers(total, batch if per_sample else 0, head if per_head else 0, row)
        for walk, number, part, kind in self._parts(term):
            tiles, _ = self.call.grid(walk)
            count = tiles * self._key_tiles(part)
            if kind[3]:
                count = len(part.columns) * (64 // self.call.block) ** 2
            low, high = (
                x.view(self.batch, walk.places, tiles) for x in self.call.extents(walk, number)
            )
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
                numbers = tiles, first, samples, own_places, places
                constants, more = self._settings("pairs", which, walk, kind)
                launch(
                    pair_gradients,
                    (count, bounds[0].shape[0] * own_places),
                    (*self.inputs, to, *bounds, walk.rows, part, *numbers),
                    constants,
                    **more,
                )
        return total

    def _keys(self, which: int, term: BiasTerm) -> Tensor:
        """The gradient of a bias `(B|1, H|1, 1, M)`, for every sample and head."""
        m = self.problem.k.shape[2]
        shape = (MOST_CHUNKS, self.batch, self.heads, m)
        total = torch.zeros(shape, dtype=torch.float32, device=term.tensor.device)
        to = Numbers(total, total.stride(1), total.stride(2), 1)
        for walk, number, part, kind in self._parts(term):
            tiles, units = self.call.grid(walk)
            programs = self._key_tiles(part), units
            chunks = -(-ENOUGH_PROGRAMS // (programs[0] * units))
            own = *self.call.extents(walk, number), walk.rows, part
            constants, more = self._settings("sums", which, walk, kind)
            launch(
                key_gradients_of_bias,
                (*programs, min(chunks, MOST_CHUNKS, tiles)),
                (*self.inputs, to, *own, tiles, walk.places, total.stride(0)),
                {**constants, "SCAN": min(power_of_2(tiles), MOST_SCANNED)},
                **more,
            )
        return total.sum(0, dtype=torch.float64)[:, :, None]

    def _table(self, which: int, term: DistanceTerm) -> Tensor:
        """The gradient `(H, L)` of a table, for every head."""
        length, device = term.table.shape[1], term.table.device
        total = torch.zeros(self.heads, length, dtype=torch.float64, device=device)
        for walk, _, part, kind in self._parts(term):
            tiles, units = self.call.grid(walk)
            wide = -(-ENOUGH_PROGRAMS // units)
            each = -(-tiles // wide)
            row_chunks = -(-tiles // each)
            key_chunks = min(-(-wide // row_chunks), MOST_CHUNKS, self._key_tiles(part))
            chunks, apart = row_chunks * key_chunks, 1
            if walk.indexed or kind[0]:
                apart = self.call.rows_of_tile(walk)
                while apart > 1 and 4 * units * chunks * apart * length > TABLE_BYTES:
                    apart //= 2
            shape = (self.batch, walk.places, chunks, apart, length)
            tables = torch.zeros(shape, dtype=torch.float32, device=device)
            constants, more = self._settings("sums", which, walk, kind)
            launch(
                distance_gradients,
                (chunks, units),
                (*self.inputs, tables, walk.rows, part, tiles, walk.places, each, key_chunks),
                {**constants, "APART": apart},
                **more,
            )
            found = row_sum(tables.permute(1, 4, 0, 2, 3).flatten(2).double())
            heads = walk.rows.heads.long() if walk.listed else slice(None)
            total[heads] = total[heads] + found
        return total
