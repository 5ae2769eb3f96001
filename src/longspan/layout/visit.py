"""Visiting a layout tile by tile, in groups that a batched matrix product can take at once.

A unit is a block of query rows and the tiles of keys it touches. Units with as many tiles form
groups. All the key orders of a walk lie behind each other in one row of *slots*, each order from a
new tile on, so that a unit's keys are one list of slot tiles whatever parts they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..remembering import all_plain, plainly
from .parts import ALL_ACT, TILE, Layout, Part, TileList, Walk
from .tiles import spans

__all__ = ["Group", "Plan", "Units", "dense", "pairs", "plan_of", "tiles_touched"]


@dataclass(slots=True)
class Group:
    """Units with as many tiles each.

    Attributes:
        sample: whose pairs these are, int64 `(G,)`; 0 when all samples share them.
        head: likewise, an index into the walk's heads.
        rows: the query rows, int64 `(G, R)`, none twice for one sample and head.
        keys: the key positions, int64 `(G, n·T)`.
        slots: the slot tiles, int64 `(G, n)`.
        exists: which pairs exist, bool `(G, R, n·T)`.
        active: which weights act on each tile, int64 `(G, n)`; None when all do everywhere.
    """

    sample: Tensor
    head: Tensor
    rows: Tensor
    keys: Tensor
    slots: Tensor
    exists: Tensor
    active: Tensor | None


class Units(NamedTuple):
    """Units by number, each with its sample, its head (0 where shared), and its first and last slot
    tile; on the CPU.
    """

    number: Tensor
    sample: Tensor
    head: Tensor
    first: Tensor
    last: Tensor


class Plan:
    """The units of a walk; made once for a static layout."""

    def __init__(self, walk: Walk, n: int, m: int, rows: int) -> None:
        self.walk, self.n, self.m, self.rows = walk, n, m, rows
        self.batch, self.heads = walk.batch, walk.instances
        self.blocks = -(-walk.queries.length // rows)
        device = walk.parts[0].low.device
        tiles = [-(-part.keys.length // TILE) for part in walk.parts]
        self.offsets = [sum(tiles[:p]) for p in range(len(tiles))]
        self.tiles = sum(tiles)
        padded = torch.stack([self._padded(part) for part in walk.parts])
        # The last part has no pairs: entries that fill up belong to it.
        self._bounds = F.pad(padded, (0, 0) * 4 + (0, 1)).to(torch.int32)
        ranges = torch.stack([self._range(low, high) for low, high in padded]).cpu()
        units, slots, owners, masks = [], [], [], []
        for p, part in enumerate(walk.parts):
            start, stop = ranges[p].flatten(1)
            if part.tiles is None:
                tile, unit = spans(start, (stop - start).clamp(min=0))
                mask = torch.full_like(tile, TileList.FULL)
            else:
                tile, unit, mask = self._listed(part.tiles, start, stop)
            units.append(unit)
            slots.append(tile + self.offsets[p])
            owners.append(torch.full_like(tile, p))
            masks.append(mask)
        unit = torch.cat(units)
        order = unit.argsort(stable=True)
        self.count = torch.bincount(unit, minlength=self.batch * self.heads * self.blocks)
        self.start = self.count.cumsum(0) - self.count
        self.listed = len(order)
        # One entry more, without pairs, fills up units that are grouped with longer ones.
        ends = torch.tensor([[0], [len(walk.parts)], [TileList.FULL]], device="cpu")
        entries = torch.stack([torch.cat(slots), torch.cat(owners), torch.cat(masks)])[:, order]
        self.host_slots = entries[0]
        self.entries = torch.cat([entries, ends], 1).to(device, non_blocking=True)
        self.slot_keys = self._slot_values([part.keys.index for part in walk.parts], None)
        self.partial = bool((entries[2] >= 0).any())

    def _padded(self, part: Part) -> Tensor:
        """Low and high of every row of every block, `(2, B|1, H|1, blocks · R)`."""
        spare = self.blocks * self.rows - self.walk.queries.length
        shape = (self.batch, self.heads, -1)
        return torch.stack([F.pad(x, (0, spare)).expand(shape) for x in (part.low, part.high)])

    def _range(self, low: Tensor, high: Tensor) -> Tensor:
        """First slot tile and one past the last of every unit, `(2, B|1, H|1, blocks)`."""
        split = (self.batch, self.heads, self.blocks, self.rows)
        far = torch.iinfo(torch.int64).max
        first = torch.where(high > low, low, far).reshape(split).amin(-1)
        last = torch.where(high > low, high, 0).reshape(split).amax(-1)
        return torch.stack([first // TILE, (last + TILE - 1) // TILE])

    def _listed(
        self, tiles: TileList, start: Tensor, stop: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Entries of a tile list: the tile's column, the unit, the mask."""
        each = TILE // self.rows
        rows, columns = tiles.rows.cpu(), tiles.columns.cpu()
        copies = self.batch * self.heads
        mask = tiles.mask.cpu().expand(self.batch, self.heads, -1).reshape(copies, 1, len(rows))
        block = rows * each + torch.arange(each, device="cpu")[:, None]
        instance = torch.arange(copies, device="cpu")[:, None, None]
        unit = instance * self.blocks + block.clamp(max=self.blocks - 1)
        touched = (mask != TileList.EMPTY) & (block < self.blocks)
        touched = touched & (columns >= start[unit]) & (columns < stop[unit])
        where = touched.nonzero(as_tuple=True)
        return columns[where[2]], unit[where], mask.expand_as(unit)[where]

    def _slot_values(self, values: list[Tensor | None], default: Tensor | None) -> Tensor:
        """One value for every slot, `(B|1, tiles · T)`, from each part's `(B|1, Lk)`; None is the
        position itself.
        """
        found = []
        device = self.walk.parts[0].low.device
        for part, value in zip(self.walk.parts, values, strict=True):
            if value is None:
                place = torch.arange(part.keys.length, device=device)
                value = place if default is None else default.expand(part.keys.length)
                value = value[None]
            padded = F.pad(value, (0, -part.keys.length % TILE))
            found.append(padded.expand(self._key_batch(values), -1))
        return torch.cat(found, 1)

    @staticmethod
    def _key_batch(values: list[Tensor | None]) -> int:
        return max(1 if v is None else v.shape[0] for v in values)

    def units(self) -> Units:
        """The units that have tiles."""
        number = self.count.nonzero()[:, 0]
        last = self.start[number] + self.count[number] - 1
        slots = self.host_slots
        return Units(
            number,
            number // (self.blocks * self.heads),
            number // self.blocks % self.heads,
            slots[self.start[number]],
            slots[last],
        )

    def groups(self, at_once: int, units: Tensor | None = None) -> Iterator[Group]:
        """Units (all of them, or these numbers) in groups, of `at_once` pairs or of one unit."""
        units = self.units().number if units is None else units
        # The last block of an order may have fewer rows than the others.
        short = self.walk.queries.length - (self.blocks - 1) * self.rows
        height = torch.where(units % self.blocks == self.blocks - 1, short, self.rows)
        width = _rounded(self.count[units])
        for high, wide in torch.stack([height, width], 1).unique(dim=0).tolist():
            chosen = units[(height == high) & (width == wide)]
            for chunk in chosen.split(max(1, at_once // (wide * TILE * self.rows))):
                yield self._group(chunk, high, wide)

    def _group(self, units: Tensor, height: int, width: int) -> Group:
        bounds = self._bounds
        device = bounds.device
        place = torch.arange(width, device="cpu")
        entry = torch.where(
            place < self.count[units, None], self.start[units, None] + place, self.listed
        ).to(device)
        units = units.to(device)
        block = units % self.blocks
        head = units // self.blocks % self.heads
        sample = units // (self.blocks * self.heads)
        slots, part, mask = self.entries[:, entry]
        row = block[:, None] * self.rows + torch.arange(height, device=device)  # (G, R)
        step = torch.arange(TILE, device=device)
        offsets = torch.tensor([*self.offsets, 0], device=device)
        local = (slots - offsets[part]).to(torch.int32)[..., None] * TILE + step.to(torch.int32)
        # (G, R, n) against (G, 1, n, T)
        at = (sample[:, None, None], head[:, None, None], row[:, :, None])
        low, high = (bounds[part[:, None, :], side, *at] for side in (0, 1))
        exists = (local[:, None] >= low[..., None]) & (local[:, None] < high[..., None])
        place_of = slots[..., None] * TILE + step  # (G, n, T)
        exists = self._restricted(exists, part, mask, sample, row, place_of)
        keys = self.slot_keys[sample if self.slot_keys.shape[0] > 1 else 0 * sample]
        keys = keys.gather(1, place_of.flatten(1))
        queries = self.walk.queries
        rows = row
        if queries.index is not None:
            own = queries.index[sample if queries.batch > 1 else 0 * sample]
            rows = own.gather(1, row)
        active = None
        if any(p.active != ALL_ACT for p in self.walk.parts):
            bits = torch.tensor([*(p.active for p in self.walk.parts), ALL_ACT], device=device)
            active = bits[part]
        return Group(sample, head, rows, keys, slots, exists.flatten(2), active)

    def _restricted(
        self, exists: Tensor, part: Tensor, mask: Tensor, sample: Tensor, row: Tensor, place: Tensor
    ) -> Tensor:
        """Takes out keys that do not count, documents that differ, and pairs that a tile's mask
        lacks.
        """
        parts, device = self.walk.parts, exists.device
        yes = torch.ones(1, dtype=torch.bool, device=device)
        if any(p.allowed is not None for p in parts):
            allowed = self._slot_values([p.allowed for p in parts], yes)
            own = allowed[sample if allowed.shape[0] > 1 else 0 * sample]
            exists = exists & own.gather(1, place.flatten(1)).view_as(place)[:, None]
        for depth in range(max(len(p.documents) for p in parts)):
            here = [p.documents[depth] if len(p.documents) > depth else None for p in parts]
            keys = self._slot_values([h and h[1] for h in here], yes.long())
            own = keys[sample if keys.shape[0] > 1 else 0 * sample]
            key_ids = own.gather(1, place.flatten(1)).view_as(place)
            for p, pair in enumerate(here):
                if pair is not None:
                    rows = pair[0][sample if pair[0].shape[0] > 1 else 0 * sample].gather(1, row)
                    equal = rows[:, :, None, None] == key_ids[:, None]
                    exists = exists & (equal | (part != p)[:, None, :, None])
        if self.partial:
            for number, listed in enumerate(p.tiles for p in parts):
                if listed is not None and listed.masks.shape[0]:
                    exists = exists & self._bits(listed, part, mask, row, number)
        return exists

    def _bits(
        self, tiles: TileList, part: Tensor, mask: Tensor, row: Tensor, number: int
    ) -> Tensor:
        """The pairs that masks of one part allow, `(G, R, n, T)`; True in tiles that have no mask
        there.
        """
        own = (part == number) & (mask >= 0)
        words = tiles.masks[torch.where(own, mask, 0)[:, None, :], (row % TILE)[:, :, None]]
        words = torch.where(own[:, None, :], words, -1)
        step = torch.arange(TILE, device=words.device)
        return ((words[..., None] >> step) & 1).bool()


def _rounded(count: Tensor) -> Tensor:
    """Counts rounded up a little, so that units of many lengths form few groups."""
    if len(count.unique()) <= 12:
        return count
    unit = 2 ** ((count.clamp(min=1).double().log2().floor().long() - 2).clamp(min=0))
    return (count + unit - 1) // unit * unit


def plan_of(walk: Walk, n: int, m: int, rows: int) -> Plan:
    """The plan of a walk in blocks of `rows` queries, kept with the walk."""
    plan = walk.plan.get(rows)
    if plan is None:
        # A walk that is kept serves calls that nobody traces as well.
        with plainly() if all_plain([walk.parts[0].low]) else nullcontext():
            plan = walk.plan[rows] = Plan(walk, n, m, rows)
    return plan


def _every_group(layout: Layout) -> Iterator[tuple[Walk, Group]]:
    for walk in layout.walks:
        for group in plan_of(walk, layout.n, layout.m, TILE).groups(1 << 20) if walk.parts else ():
            yield walk, group


def dense(layout: Layout, batch: int, heads: int) -> Tensor:
    """How many times the layout has each pair, int `(batch, heads, n, m)`: 1 where the pair exists,
    else 0.
    """
    device = layout.walks[0].parts[0].low.device if layout.walks else None
    found = torch.zeros(batch, heads, layout.n, layout.m, dtype=torch.int64, device=device)
    for walk, group in _every_group(layout):
        own = walk.heads if walk.heads is not None else range(heads)
        g, r, c = group.exists.nonzero(as_tuple=True)
        at = group.rows[g, r], group.keys[g, c]
        for b in range(batch):
            for place, h in enumerate(own):
                mine = (group.sample[g] == b) | torch.tensor(walk.batch == 1, device="cpu")
                mine &= (group.head[g] == place) | torch.tensor(walk.instances == 1, device="cpu")
                ones = torch.ones(int(mine.sum()), dtype=torch.int64, device=device)
                found[b, h].index_put_((at[0][mine], at[1][mine]), ones, accumulate=True)
    return found


def _copies(walk: Walk, batch: int, heads: int) -> int:
    own = heads if walk.heads is None else len(walk.heads)
    return (batch if walk.batch == 1 else 1) * (own if walk.instances == 1 else 1)


def pairs(layout: Layout, batch: int, heads: int) -> int:
    """How many pairs exist, over all samples and heads."""
    return sum(int(g.exists.sum()) * _copies(w, batch, heads) for w, g in _every_group(layout))


def tiles_touched(layout: Layout, batch: int, heads: int) -> int:
    """How many tiles are computed, over all samples and heads."""
    plans = [(w, plan_of(w, layout.n, layout.m, TILE)) for w in layout.walks if w.parts]
    return sum(plan.listed * _copies(walk, batch, heads) for walk, plan in plans)
