"""A layout taken at its word: every pair of every part, by the definition of the normal form."""

from __future__ import annotations

import torch
from torch import Tensor

from longspan.layout import TILE, Layout, Part, TileList, Walk


def expand(layout: Layout, batch: int, heads: int) -> tuple[Tensor, Tensor]:
    """How many times each pair is there, and which weights act on it (bits; 0 where it is not).

    Both int64 `(batch, heads, n, m)`. Also checks what a kernel relies on: intervals inside their
    order, orders without repetition, tiles sorted, masks each different.
    """
    shape = (batch, heads, layout.n, layout.m)
    count, active = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    for walk in layout.walks:
        own = range(heads) if walk.heads is None else walk.heads
        for part in walk.parts:
            _check(walk, part, layout)
            for b in range(batch):
                for place, h in enumerate(own):
                    found = _pairs(walk, part, layout, b, place)
                    count[b, h] += found
                    active[b, h] += found * part.active
    return count, active


def _pairs(walk: Walk, part: Part, layout: Layout, b: int, h: int) -> Tensor:
    """The pairs of one part, sample and head, int64 `(n, m)`."""
    low, high = _of(part.low, b, h), _of(part.high, b, h)  # (Lq,)
    place = torch.arange(part.keys.length)
    inside = (place >= low[:, None]) & (place < high[:, None])  # (Lq, Lk)
    if part.allowed is not None:
        inside &= _of(part.allowed, b)
    for rows, keys in part.documents:
        inside &= _of(rows, b)[:, None] == _of(keys, b)
    if part.tiles is not None:
        inside &= _tiles(part.tiles, layout, b, h)
    rows = _index(walk.queries.index, walk.queries.length, b)
    keys = _index(part.keys.index, part.keys.length, b)
    found = torch.zeros(layout.n, layout.m, dtype=torch.int64)
    r, c = inside.nonzero(as_tuple=True)
    return found.index_put((rows[r], keys[c]), torch.tensor(1), accumulate=True)


def _tiles(tiles: TileList, layout: Layout, b: int, h: int) -> Tensor:
    """Which pairs a tile list has, bool `(n, m)`."""
    across = -(-layout.m // TILE) * TILE
    found = torch.zeros(-(-layout.n // TILE) * TILE, across, dtype=torch.bool)
    bit = torch.arange(TILE)
    for row, column, mask in zip(
        tiles.rows.tolist(), tiles.columns.tolist(), _of(tiles.mask, b, h).tolist(), strict=True
    ):
        if mask == TileList.EMPTY:
            continue
        bits = torch.tensor(True)
        if mask != TileList.FULL:
            bits = (tiles.masks[mask][:, None] >> bit & 1).bool()
        found[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE] |= bits
    return found[: layout.n, : layout.m]


def _check(walk: Walk, part: Part, layout: Layout) -> None:
    filled = part.high > part.low
    low, high = part.low.expand_as(filled)[filled], part.high.expand_as(filled)[filled]
    assert (low >= 0).all() and (high <= part.keys.length).all()
    for order, size in ((walk.queries, layout.n), (part.keys, layout.m)):
        assert order.length <= size
        if order.index is None:
            assert order.length == size
            continue
        assert order.index.shape[1] == order.length
        assert (order.index >= 0).all() and (order.index < size).all()
        assert all(len(set(row)) == order.length for row in order.index.tolist())
    if part.tiles is not None:
        tiles = part.tiles
        assert walk.queries.index is None and part.keys.index is None
        numbers = tiles.rows * -(-layout.m // TILE) + tiles.columns
        assert (numbers.diff() > 0).all(), "tiles are sorted by row, then by column, none twice"
        assert len(tiles.masks.unique(dim=0)) == len(tiles.masks), "each mask is there once"


def _of(values: Tensor, *place: int) -> Tensor:
    """The values of a sample (and head), which may be shared."""
    for at in place:
        values = values[at if values.shape[0] > 1 else 0]
    return values


def _index(index: Tensor | None, length: int, b: int) -> Tensor:
    return torch.arange(length) if index is None else _of(index, b)
