"""The gradient of a table by distance: every program sums into a table of its own."""

from __future__ import annotations

import triton
import triton.language as tl

from .bias_tiles import gradient_after, keys_of_tile, rows_of_tile
from .pairs import head_of, key_range


@triton.jit
def _add(below, above, to, place, more, length):
    """Adds numbers to their places of a table, no place twice; those of places below and above it
    to two sums.
    """
    inside = (place >= 0) & (place < length) & (more != 0.0)
    tl.store(to, tl.load(to, mask=inside, other=0.0) + more, mask=inside)
    low = tl.where(place < 0, more, 0.0)
    high = tl.where(place >= length, more, 0.0)
    if len(place.shape) == 2:
        return below + tl.sum(low, 0), above + tl.sum(high, 0)
    else:
        return below + low, above + high


@triton.jit
def _diagonals(ds, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of a square tile's diagonals: from the main one on, and those BN before them.

    Row r turns left by r keys: what was a diagonal is then a column, down to the place where the
    turned-in keys begin, and from there on the one BN before it.
    """
    r = tl.arange(0, BM)[:, None]
    c = tl.arange(0, BN)[None, :]
    turned = tl.gather(ds, (r + c) % BN, 1)
    within = r + c < BN
    return tl.sum(tl.where(within, turned, 0.0), 0), tl.sum(tl.where(within, 0.0, turned), 0)


@triton.jit
def _add_rows(
    below, above, table, ds, place, length, BM: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """Adds a tile of any rows and keys: APART rows at once, each to a table of its own. A row has
    no distance twice.
    """
    r = tl.arange(0, BM)[:, None]
    to = table + (r % APART) * length + place
    if APART == BM:
        below, above = _add(below, above, to, place, ds, length)
    else:
        for turn in range(0, BM // APART):
            more = tl.where(r // APART == turn, ds, 0.0)
            below, above = _add(below, above, to, place, more, length)
            tl.debug_barrier()
    return below, above


@triton.jit
def distance_gradients(
    given, grad, limits, means, tables, rows, part, tiles, places, tiles_each, key_chunks,
    APART: tl.constexpr, WHICH: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """What one part adds to the gradient of a table, `(B, places, chunks, APART, length)`, all 0
    before: a program for some tiles of rows of one sample and head, and a chunk of the keys of
    each.

    Where rows and keys follow one another the diagonals of a tile are summed; half of them go on in
    the next tile, and wait for it. So a tile of rows meets no place of its table twice, and threads
    wait for one another only after it.
    """
    BM: tl.constexpr = MADE.BM
    BN: tl.constexpr = MADE.BN
    KINDS: tl.constexpr = MADE.KINDS
    ORDERED: tl.constexpr = not (MADE.INDEXED or KINDS[0][0])
    unit = tl.program_id(1)
    b = unit // places
    place = unit % places
    h = head_of(rows, place, MADE.LISTED)
    length = given.terms[WHICH].length
    offset = length - 1 - given.terms[WHICH].right
    table = tables + (unit.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * APART * length
    key_chunk = tl.program_id(0) % key_chunks
    begin = tl.program_id(0) // key_chunks * tiles_each
    c = tl.arange(0, BN)
    below = tl.zeros([BN], tl.float32)
    above = tl.zeros([BN], tl.float32)
    in_row: tl.constexpr = 64 // BN
    for tile in range(begin, tl.minimum(begin + tiles_each, tiles)):
        tile_rows = rows_of_tile(tile, given, grad, limits, means, rows, part, b, h, place, MADE)
        if KINDS[0][3]:
            own = tile * BM // 64
            first = tl.load(part.start + own) * in_row
            count = tl.load(part.start + own + 1) * in_row - first
        else:
            first, _, _, last = key_range(tile_rows[4], tile_rows[5], BN, False)
            count = tl.cdiv(last - first, BN)
        step = tl.cdiv(count, key_chunks)
        # The place of the diagonals that wait, and their sums.
        to_zero = offset - (tile * BM + given.shift)
        waiting = to_zero
        ahead = tl.zeros([BN], tl.float32)
        for turn in range(key_chunk * step, tl.minimum(key_chunk * step + step, count)):
            entry = 0
            start = first + turn * BN
            if KINDS[0][3]:
                entry = (first + turn) // in_row
                start = tl.load(part.columns + entry) * 64 + turn % in_row * BN
            tile_keys = keys_of_tile(start, given, part, b, h, MADE)
            ds = gradient_after(tile_rows, tile_keys, entry, given, part, b, h, place, WHICH, MADE)
            if not ORDERED:
                at_pair = tile_keys[1][None, :] - tile_rows[3][:, None] + offset
                below, above = _add_rows(below, above, table, ds, at_pair, length, BM, APART)
            else:
                if KINDS[0][3]:
                    # The tile before may not be next to this one.
                    goes_on = (c * 0 + waiting) == start - BN + to_zero
                    alone = tl.where(goes_on, 0.0, ahead)
                    to = waiting + c
                    below, above = _add(below, above, table + to, to, alone, length)
                    ahead = tl.where(goes_on, ahead, 0.0)
                waiting = start + to_zero
                next_ahead, behind = _diagonals(ds, BM, BN)
                to = waiting - BN + c
                below, above = _add(below, above, table + to, to, ahead + behind, length)
                ahead = next_ahead
        if ORDERED:
            to = waiting + c
            below, above = _add(below, above, table + to, to, ahead, length)
        # The next tile of rows adds to the same places, by other threads.
        tl.debug_barrier()
    tl.store(table, tl.load(table) + tl.sum(below, 0))
    tl.debug_barrier()
    end = table + length - 1
    tl.store(end, tl.load(end) + tl.sum(above, 0))
