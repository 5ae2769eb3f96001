"""Tile lists: which tiles a pattern touches, which it fills, and the bits of the others."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..patterns import Pattern, Random
from ..remembering import plainly
from .clauses import Clause, TooManyClauses, Within, Without, clauses_of, limits_of
from .parts import TILE, TileList

__all__ = ["spans", "tile_list", "within"]

# So many tiles are asked for at once: 256 tiles are 1 Mi pairs.
TILES_AT_ONCE = 256


def tile_list(pattern: Pattern, n: int, m: int, device: torch.device) -> TileList:
    """The tiles of a pattern, in O(tiles): only those it can touch are looked at.

    On a GPU nothing is waited for: there a pattern with tensors keeps its empty tiles, marked so,
    and its masks as they come.
    """
    if next(pattern.tensors(), None) is None:
        found = _static(pattern, n, m)
        if device.type == "cpu":
            return found
        rows, columns, mask, masks = (
            x.to(device, non_blocking=True)
            for x in (found.rows, found.columns, found.mask, found.masks)
        )
        return TileList(rows, columns, mask, masks, found.whole)
    return _build(pattern, n, m, device)


@lru_cache(maxsize=64)
@plainly()
def _static(pattern: Pattern, n: int, m: int) -> TileList:
    return _build(pattern, n, m, torch.device("cpu"))


def _build(pattern: Pattern, n: int, m: int, device: torch.device) -> TileList:
    rows, columns = _candidates(pattern, n, m)
    rows, columns = rows.to(device), columns.to(device)
    step = torch.arange(TILE, device=device)
    words: list[Tensor] = []
    full_tiles: list[Tensor] = []
    empty_tiles: list[Tensor] = []
    for r, c in zip(rows.split(TILES_AT_ONCE), columns.split(TILES_AT_ONCE), strict=True):
        row = r[:, None] * TILE + step
        key = c[:, None] * TILE + step
        # Tiles stick out over the ends; a pattern is only ever asked about positions that exist.
        i, j = row.clamp(max=n - 1) + (m - n), key.clamp(max=m - 1)
        inside = pattern.contains(i[:, :, None], j[:, None, :], n, m)
        possible = torch.where(row < n, _words(key < m)[:, None], 0)
        words.append(_words(inside) & possible)
        full_tiles.append((words[-1] == possible).all(-1))
        empty_tiles.append((words[-1] == 0).all(-1))
    if not words:
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        return TileList(empty, empty, empty.expand(1, 1, 0), empty.new_zeros(0, TILE))
    bits = torch.cat(words, dim=2)
    full = torch.cat(full_tiles, dim=2)
    empty_tile = torch.cat(empty_tiles, dim=2)
    if device.type == "cpu":
        kept = ~empty_tile.all(0).all(0)
        rows, columns, bits = rows[kept], columns[kept], bits[:, :, kept]
        full, empty_tile = full[:, :, kept], empty_tile[:, :, kept]
        partial = ~(full | empty_tile)
        masks, where = (
            bits[partial].unique(dim=0, return_inverse=True)
            if partial.any()
            else (
                bits.new_zeros(0, TILE),
                bits.new_zeros(0),
            )
        )
        mask = torch.full(full.shape, TileList.EMPTY, device=full.device).masked_scatter(
            partial, where
        )
    else:
        masks = bits.reshape(-1, TILE)
        mask = torch.arange(masks.shape[0], device=device).reshape(full.shape)
        mask = torch.where(empty_tile, TileList.EMPTY, mask)
    whole = device.type == "cpu" and bool(full.all())
    return TileList(rows, columns, torch.where(full, TileList.FULL, mask), masks, whole)


def within(tiles: TileList, low: Tensor, high: Tensor) -> TileList:
    """The tiles in which some row has a key of its interval [low, high), `(B|1, H|1, n)`."""
    spare = -low.shape[2] % TILE
    some = high > low
    first = F.pad(torch.where(some, low, torch.iinfo(low.dtype).max), (0, spare)).amin((0, 1))
    last = F.pad(torch.where(some, high, 0), (0, spare)).amax((0, 1))
    first[low.shape[2] :] = torch.iinfo(low.dtype).max
    first, last = first.view(-1, TILE).amin(1), last.view(-1, TILE).amax(1)
    start = tiles.columns * TILE
    kept = (first[tiles.rows] < start + TILE) & (last[tiles.rows] > start)
    return replace(
        tiles,
        rows=tiles.rows[kept],
        columns=tiles.columns[kept],
        mask=tiles.mask[:, :, kept],
    )


def _words(inside: Tensor) -> Tensor:
    """The last dim's 64 truths as the bits of one number, key 0 the lowest."""
    # Eight truths at a time are one number whose bytes are 0 or 1; this factor brings byte i to
    # bit 56 + i, and nothing else there.
    eights = inside.contiguous().view(torch.int64)
    return (eights * 0x0102040810204080 >> 56).to(torch.uint8).view(torch.int64).squeeze(-1)


def _candidates(pattern: Pattern, n: int, m: int) -> tuple[Tensor, Tensor]:
    """Tiles that the pattern may touch, sorted; on the CPU, without looking at any values."""
    while isinstance(pattern, Without):
        pattern = pattern.pattern
    columns = max(-(-m // TILE), 1)
    try:
        clauses = clauses_of(pattern)
    except TooManyClauses:
        clauses = [Clause()]
    places = torch.cat([_tiles_of_clause(c, n, m) for c in clauses]).unique()
    return places // columns, places % columns


def _tiles_of_clause(clause: Clause, n: int, m: int) -> Tensor:
    """Numbers (row · columns + column) of the tiles that a clause may touch."""
    columns = -(-m // TILE)
    drawn = [_tiles_of_table(p, n, m) for p in clause.tiles if isinstance(p, Random)]
    if drawn:
        return min(drawn, key=Tensor.numel)
    i = torch.arange(m - n, m, device="cpu")
    low, high = (
        torch.zeros(n, dtype=torch.int64, device="cpu"),
        torch.full((n,), m - 1, device="cpu"),
    )
    for limit in clause.limits:
        if isinstance(limit, Within):
            continue
        # Of several heads a tile is touched when one of them touches it.
        first, last = limits_of(limit, i, m)
        low = low if first is None else torch.maximum(low, first.reshape(-1, n).amin(0))
        high = high if last is None else torch.minimum(high, last.reshape(-1, n).amax(0))
    spare = -n % TILE
    low = F.pad(torch.where(high < low, m, low), (0, spare), value=m)
    high = F.pad(high, (0, spare), value=-1)
    start = low.view(-1, TILE).amin(1) // TILE
    width = (high.view(-1, TILE).amax(1) // TILE + 1 - start).clamp(min=0)
    return spans(torch.arange(len(start), device=start.device) * columns + start, width)[0]


def spans(start: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """All the numbers start … start + width − 1 of every span, one span after the other, and which
    span each is of.
    """
    owner = torch.repeat_interleave(width)
    before = width.cumsum(0) - width
    return start[owner] + torch.arange(len(owner), device=owner.device) - before[owner], owner


def _tiles_of_table(pattern: Random, n: int, m: int) -> Tensor:
    columns = -(-m // TILE)
    block, found = pattern.block, []
    for query_block, drawn in enumerate(pattern.table_for(m)):
        first = max(query_block * block - (m - n), 0)
        last = min((query_block + 1) * block - (m - n), n) - 1
        for key_block in drawn:
            if last < first or key_block < 0 or key_block * block >= m:
                continue
            start = key_block * block // TILE
            width = (min((key_block + 1) * block, m) - 1) // TILE + 1 - start
            for row in range(first // TILE, last // TILE + 1):
                found.append((row * columns + start, width))
    table = torch.tensor(found, dtype=torch.int64, device="cpu").reshape(-1, 2)
    return spans(table[:, 0], table[:, 1])[0].unique()
