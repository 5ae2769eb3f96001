"""A layout's normal form: what kernels walk.

A layout is a short list of walks. A walk is an order of queries and a few disjoint parts; a part is
an order of keys and, for every query row, one interval [low, high) in that order. A part may carry
a bit for every key (padding, keys that another part already has), document ids that must be equal,
and a tile list that says which of its pairs exist. Every pair that exists is in exactly one part of
one walk.

Shapes: `B|1` and `H|1` are 1 where the layout does not tell samples or heads apart. Lq and Lk are
    the lengths of the orders.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["ALL_ACT", "TILE", "Layout", "Order", "Part", "TileList", "Walk"]

# Tiles are TILE × TILE pairs: one 64-bit word holds a row of a tile's mask.
TILE = 64

# What `Part.active` is when every weight acts.
ALL_ACT = -1


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """An order of queries or of keys.

    Attributes:
        length: how many it lists.
        index: which ones, int64 `(B|1, length)`, no one twice; None is the identity.
        stride: above 1 for the residue order: those with the same position mod stride lie together.
    """

    length: int
    index: Tensor | None = None
    stride: int = 1

    @property
    def batch(self) -> int:
        return 1 if self.index is None else self.index.shape[0]

    def of(self, values: Tensor) -> Tensor:
        """Values `(B|1, count)` in this order, `(B|1, length)`."""
        if self.index is None:
            return values
        batch = max(values.shape[0], self.index.shape[0])
        return values.expand(batch, -1).gather(1, self.index.expand(batch, -1))


@dataclass(frozen=True, slots=True, eq=False)
class TileList:
    """The tiles of a part in identity orders, sorted by row, then by column.

    Attributes:
        rows: which TILE queries, int64 `(tiles,)`.
        columns: which TILE keys, int64 `(tiles,)`.
        mask: for each tile a row of `masks`, int64 `(B|1, H|1, tiles)`; −1 is a full tile, −2 an
            empty one.
        masks: bits of the partial tiles, each different, int64 `(masks, TILE)`: bit c of word r is
            the pair (r, c).
        whole: it is known that every tile is full.
    """

    rows: Tensor
    columns: Tensor
    mask: Tensor
    masks: Tensor
    whole: bool = False

    FULL = -1
    EMPTY = -2


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Pairs of one key order: row r has the keys [low, high) of that order, less what the rest
    takes away.

    Attributes:
        keys: the order of keys.
        low: first key of every row, int64 `(B|1, H|1, Lq)`.
        high: one past the last; `high <= low` is an empty row.
        allowed: keys that count, bool `(B|1, Lk)`, or None for all.
        documents: pairs `(ids of rows (B|1, Lq), ids of keys (B|1, Lk))` that must be equal.
        tiles: which pairs exist, or None for all within the intervals. Needs identity orders.
        active: bit w is set when the w-th weight acts on these pairs; `ALL_ACT` has all bits set.
        band: (left, right) where the intervals are known to be i − left … i + right for the row at
            position i, as far as there are keys; rows that another walk has are empty instead.
    """

    keys: Order
    low: Tensor
    high: Tensor
    allowed: Tensor | None = None
    documents: tuple[tuple[Tensor, Tensor], ...] = ()
    tiles: TileList | None = None
    active: int = ALL_ACT
    band: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Walk:
    """Parts in one query order.

    Attributes:
        heads: the query heads it is for, None for all.
        plan: what backends keep with a walk, by names of their own.
        unpadded: the walk that this one is, but for keys taken away as padding; None for itself.
        padding: bool `(B, m)`, False for those keys; None where none are.
    """

    queries: Order
    parts: tuple[Part, ...]
    heads: tuple[int, ...] | None = None
    plan: dict[Any, Any] = field(default_factory=dict)
    unpadded: Walk | None = None
    padding: Tensor | None = None

    @property
    def batch(self) -> int:
        """1 when every sample has the same pairs, else how many samples there are."""
        sizes = [self.queries.batch]
        for part in self.parts:
            sizes += [part.keys.batch, part.low.shape[0], part.high.shape[0]]
            sizes += [1 if part.allowed is None else part.allowed.shape[0]]
            sizes += [ids.shape[0] for pair in part.documents for ids in pair]
            sizes += [1 if part.tiles is None else part.tiles.mask.shape[0]]
        return max(sizes)

    @property
    def instances(self) -> int:
        """1 when every head has the same pairs, else how many heads there are."""
        sizes = [1]
        for part in self.parts:
            sizes += [part.low.shape[1], part.high.shape[1]]
            sizes += [1 if part.tiles is None else part.tiles.mask.shape[1]]
        return max(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A pattern, and what weights cut from it, for n queries and m keys.

    Attributes:
        walks: together they have every pair once.
        merged: some query row has pairs in two walks, whose results merge by log-sum-exp.
        notes: what `explain` should say about how the pattern was compiled.
    """

    n: int
    m: int
    walks: tuple[Walk, ...]
    merged: bool = False
    notes: tuple[str, ...] = ()

    def with_padding(self, key_padding: Tensor) -> Layout:
        """The same layout without the keys at which bool `(B, m)` is False."""
        walks = []
        for walk in self.walks:
            parts = []
            for part in walk.parts:
                real = part.keys.of(key_padding)
                allowed = real if part.allowed is None else part.allowed & real
                parts.append(replace(part, allowed=allowed))
            walks.append(
                Walk(walk.queries, tuple(parts), walk.heads, unpadded=walk, padding=key_padding)
            )
        return replace(self, walks=tuple(walks))

    def to(self, device: torch.device) -> Layout:
        """The same layout on another device; copies do not wait for it."""
        return _move(self, device, {})


def _move(value: Any, device: torch.device, moved: dict[int, Any]) -> Any:
    """A copy of a value there; an order that several parts share stays one object."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple):
        return tuple(_move(v, device, moved) for v in value)
    if isinstance(value, Walk):
        queries = _move(value.queries, device, moved)
        return Walk(queries, _move(value.parts, device, moved), value.heads)
    if isinstance(value, (Layout, Part, Order, TileList)):
        if id(value) not in moved:
            names = value.__slots__
            found = {name: _move(getattr(value, name), device, moved) for name in names}
            moved[id(value)] = type(value)(**found)
        return moved[id(value)]
    return value
