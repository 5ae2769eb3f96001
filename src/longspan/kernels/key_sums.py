"""Gradients of keys and values, summed over the query blocks that saw them, in one fixed order."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..fixed_order import add_at
from ..layout import TILE, Plan, Walk
from .problem import SUM_BYTES, Problem
from .products import over_seen
from .tile import KeyHeads, Tile

__all__ = ["KeySums", "SlotSums", "key_heads_at_once"]


def key_heads_at_once(problem: Problem) -> Iterator[KeyHeads]:
    """Samples and key heads whose gradients are summed at once: all, some samples, or some heads of
    one sample.
    """
    batch, heads = problem.k.shape[:2]
    width = max(problem.k.shape[3], problem.v.shape[3]) * problem.wide.itemsize
    longest = max(problem.layout.m, 1)
    most = max(1, SUM_BYTES // (width * (longest + TILE)))
    if most >= heads:
        for first in range(0, batch, most // heads):
            yield KeyHeads(first, min(first + most // heads, batch), 0, heads)
        return
    for sample in range(batch):
        for low in range(0, heads, most):
            yield KeyHeads(sample, sample + 1, low, min(low + most, heads))


class KeySums:
    """dk and dv of some key heads, over all walks."""

    def __init__(self, problem: Problem, which: KeyHeads, dk: Tensor, dv: Tensor) -> None:
        self.problem, self.which = problem, which
        b, h = slice(which.first, which.last), slice(which.low, which.high)
        self.finals = (dk[b, h], dv[b, h])
        # One head too long for a buffer is summed in its own dtype.
        self.sums = tuple(
            torch.zeros_like(x, dtype=problem.wide)
            if x.numel() * problem.wide.itemsize <= SUM_BYTES
            else x
            for x in self.finals
        )

    def write(self) -> None:
        """Puts the sums where the gradients are wanted."""
        for total, final in zip(self.sums, self.finals, strict=True):
            if total is not final:
                final.copy_(total)

    def ranges(self, walk: Walk, plan: Plan) -> Iterator[SlotSums]:
        """The walk's slot tiles, in as few ranges as buffers allow."""
        which = self.which
        copies = (which.last - which.first) * (which.high - which.low)
        width = max(x.shape[3] for x in self.sums) * self.problem.wide.itemsize
        step = max(1, SUM_BYTES // (copies * width * TILE))
        for start in range(0, plan.tiles, step):
            yield SlotSums(self, walk, plan, start, min(start + step, plan.tiles))


class SlotSums:
    """Sums over the slot tiles [start, stop) of a walk."""

    def __init__(self, sums: KeySums, walk: Walk, plan: Plan, start: int, stop: int) -> None:
        self.sums, self.walk, self.plan = sums, walk, plan
        self.start, self.stop = start, stop
        which, problem = sums.which, sums.problem
        self.shape = (which.last - which.first, which.high - which.low, stop - start)
        rows = self.shape[0] * self.shape[1] * self.shape[2]
        # The last row takes what lies outside of the range.
        self.totals = tuple(
            torch.zeros(rows + 1, TILE * x.shape[3], dtype=problem.wide, device=x.device)
            for x in sums.sums
        )

    def units(self) -> Iterator[tuple[Tensor, bool]]:
        """The units that touch the range, and whether their rows are done with this visit (else
        only their keys).
        """
        units, which, problem = self.plan.units(), self.sums.which, self.sums.problem
        chosen = (units.first < self.stop) & (units.last >= self.start)
        if self.walk.batch > 1:
            chosen &= (units.sample >= which.first) & (units.sample < which.last)
        if self.walk.instances > 1:
            heads = units.head
            if self.walk.heads is not None:
                heads = torch.tensor(self.walk.heads, device=heads.device)[heads]
            own = heads // (problem.q.shape[1] // problem.k.shape[1])
            chosen &= (own >= which.low) & (own < which.high)
        begins = units.first >= self.start
        for part, whole in ((chosen & begins, True), (chosen & ~begins, False)):
            if bool(part.any()):
                yield units.number[part], whole

    def add(
        self, tile: Tile, to_keys: list[tuple[Tensor, Tensor]], to_values: tuple[Tensor, Tensor]
    ) -> None:
        """Adds wᵀ·rows for each pair of weights `(P, G, R, L)` and rows `(P, G, R, D)`."""
        which = self.sums.which
        place = (tile.b - which.first) * self.shape[1] + (tile.key_head - which.low)
        slot = tile.slots - self.start
        index = place[..., None] * self.shape[2] + slot
        index = torch.where((slot >= 0) & (slot < self.shape[2]), index, len(self.totals[0]) - 1)
        for total, pairs in zip(self.totals, (to_keys, [to_values]), strict=True):
            for weights, rows in pairs:
                for keys in tile.steps(rows.shape[3]):
                    seen = tile.seen[..., keys].transpose(-1, -2)
                    w = weights[..., keys].transpose(-1, -2)
                    each = over_seen(w, seen, rows, finite=tile.finite)
                    own = index[..., keys.start // TILE : keys.stop // TILE]
                    add_at(total, own.flatten(), each.reshape(-1, total.shape[1]))

    def finish(self) -> None:
        """Adds the sums of slots to those of keys, part by part: within one, no key comes twice."""
        first = self.sums.which.first
        for part, offset in zip(self.walk.parts, self.plan.offsets, strict=True):
            low = max(offset * TILE, self.start * TILE)
            high = min(offset * TILE + part.keys.length, self.stop * TILE)
            if high <= low:
                continue
            here = slice(low - self.start * TILE, high - self.start * TILE)
            for total, final in zip(self.totals, self.sums.sums, strict=True):
                slots = total[:-1].view(*self.shape[:2], self.shape[2] * TILE, -1)[:, :, here]
                index = part.keys.index
                if index is None:
                    keys = slice(low - offset * TILE, high - offset * TILE)
                    final[:, :, keys] += slots.to(final.dtype)
                    continue
                own = index[first : first + self.shape[0]] if index.shape[0] > 1 else index
                own = own[:, low - offset * TILE : high - offset * TILE].expand(self.shape[0], -1)
                b = torch.arange(self.shape[0], device=own.device)[:, None]
                final[b, :, own] = final[b, :, own] + slots.transpose(1, 2).to(final.dtype)
