"""The gradient of a table by distance: every program sums into a table of its own."""

from __future__ import annotations

import triton
import triton.language as tl

from .bias_tiles import gradient_after, keys_of_tile, rows_of_tile
from .pairs import head_of, key_range


@triton.jit
def _add(below, above, to, place, more, length):
    """Adds numbers to their places of a table, no place twice; those of places below and above it
    are summed.
    """
    inside = (place >= 0) & (place < length) & (more != 0.0)
    tl.store(to, tl.load(to, mask=inside, other=0.0) + more, mask=inside)
    below += tl.sum(tl.where(place < 0, more, 0.0))
    above += tl.sum(tl.where(place >= length, more, 0.0))
    return below, above


@triton.jit
def _add_diagonals(below, above, table, ds, first, length, BM: tl.constexpr, BN: tl.constexpr):
    """Adds a tile whose rows and keys follow one another; `first` is the place of its first pair.

    Row r turns left by r keys: what was a diagonal is then a column, above the place where the
    turned-in keys begin, and BN places lower, below it.
    """
    r = tl.arange(0, BM)[:, None]
    c = tl.arange(0, BN)
    turned = tl.gather(ds, (r + c[None, :]) % BN, 1)
    within = r + c[None, :] < BN
    ahead = tl.sum(tl.where(within, turned, 0.0), 0)
    behind = tl.sum(tl.where(within, 0.0, turned), 0)
    place = first + c
    below, above = _add(below, above, table + place, place, ahead, length)
    place = first + c - BN
    return _add(below, above, table + place, place, behind, length)


@triton.jit
def _add_rows(
    below, above, table, ds, place, length, BM: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Adds a tile of any rows and keys: APART rows at once, each to a table of its own. A row has
    no distance twice.
    """
    r = tl.arange(0, BM)[:, None]
    to = table + (r % APART) * length + place
    for turn in range(0, BM // APART):
        more = tl.where(r // APART == turn, ds, 0.0)
        below, above = _add(below, above, to, place, more, length)
        tl.debug_barrier()
    return below, above


@triton.jit
def distance_gradients(
    q, k, v, grad, limits, means, tables, rows, part, terms, reaches, drop, shift, scale, each,
    tiles, places, tiles_each, key_chunks, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr,
    PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr,
    LISTED: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr, WHICH: tl.constexpr,
    REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr, APART: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """What one part adds to the gradient of a table, `(B, places, chunks, APART, length)`, all 0
    before: a program for some tiles of rows of one sample and head, and every so many of their
    tiles of keys.
    """
    unit = tl.program_id(1)
    b = unit // places
    place = unit % places
    h = head_of(rows, place, LISTED)
    length = terms[WHICH].length
    offset = length - 1 - terms[WHICH].right
    table = tables + (unit.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * APART * length
    key_chunk = tl.program_id(0) % key_chunks
    begin = tl.program_id(0) // key_chunks * tiles_each
    below = 0.0
    above = 0.0
    in_row: tl.constexpr = 64 // BN
    for tile in range(begin, tl.minimum(begin + tiles_each, tiles)):
        tile_rows = rows_of_tile(
            tile, q, grad, limits, means, rows, part, reaches, b, h, place, shift, D, DV, PD, PDV,
            BM, INDEXED, KINDS, REACHES,
        )  # fmt: skip
        i = tile_rows[3]
        if KINDS[0][3]:
            own = tile * BM // 64
            first = tl.load(part.start + own) * in_row
            last = tl.load(part.start + own + 1) * in_row
            count = last - first
        else:
            first, _, _, last = key_range(tile_rows[4], tile_rows[5], BN, False)
            count = tl.cdiv(last - first, BN)
        for turn in range(key_chunk, count, key_chunks):
            entry = 0
            start = first + turn * BN
            if KINDS[0][3]:
                entry = (first + turn) // in_row
                start = tl.load(part.columns + entry) * 64 + turn % in_row * BN
            tile_keys = keys_of_tile(start, k, v, part, b, h // each, D, DV, PD, PDV, BN, KINDS)
            ds = gradient_after(
                tile_rows, tile_keys, entry, part, terms, reaches, drop, b, h, place, scale, BM,
                BN, KINDS, TERMS, WHICH, REACHES, DROPOUT, FACTORS, PRECISION,
            )  # fmt: skip
            if INDEXED or KINDS[0][0]:
                where = tile_keys[1][None, :] - i[:, None] + offset
                below, above = _add_rows(below, above, table, ds, where, length, BM, APART)
            else:
                from_first = start - (tile * BM + shift) + offset
                below, above = _add_diagonals(below, above, table, ds, from_first, length, BM, BN)
            # The next tile adds to the same places, by other threads.
            tl.debug_barrier()
    tl.store(table, tl.load(table) + below)
    tl.debug_barrier()
    end = table + length - 1
    tl.store(end, tl.load(end) + above)
