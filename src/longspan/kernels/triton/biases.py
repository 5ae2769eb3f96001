"""The gradient of a bias tensor: a program for a tile of its pairs, or of its keys."""

from __future__ import annotations

import triton
import triton.language as tl

from .bias_tiles import gradient_after, keys_of_tile, rows_of_tile
from .pairs import at, head_of, keys_at, row_of


@triton.jit(do_not_specialize=["first"])
def pair_gradients(
    given, grad, limits, means, total, tile_low, tile_high, rows, part, tiles, first, samples,
    own_places, places, WHICH: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """What one part adds to the gradient of a bias that has numbers for pairs.

    A program has one tile of pairs, in slots of the part's orders. It sums in order over the
    `samples` from the `first` of its own on, and over the `places` of heads, that share the bias's
    numbers. All of them have the same orders.
    """
    BM: tl.constexpr = MADE.BM
    BN: tl.constexpr = MADE.BN
    KINDS: tl.constexpr = MADE.KINDS
    unit = tl.program_id(1)
    b0 = first + unit // own_places
    place0 = unit % own_places
    entry = 0
    if KINDS[0][3]:
        in_row: tl.constexpr = 64 // BM
        e = tl.program_id(0) // (in_row * in_row)
        inside = tl.program_id(0) % (in_row * in_row)
        entry = tl.load(part.column_entry + e)
        tile = tl.load(part.column_rows + e) * in_row + inside // in_row
        start = tl.load(part.columns + entry) * 64 + inside % in_row * BN
        met = start < part.length
    else:
        tile = tl.program_id(0) % tiles
        start = tl.program_id(0) // tiles * BN
        low = tl.load(tile_low + unit * tiles + tile)
        met = (low < start + BN) & (tl.load(tile_high + unit * tiles + tile) > start)
    if met:
        acc = tl.zeros([BM, BN], tl.float32)
        for turn in range(samples * places):
            b = b0 + turn // places
            place = place0 + turn % places
            h = head_of(rows, place, MADE.LISTED)
            tile_rows = rows_of_tile(
                tile, given, grad, limits, means, rows, part, b, h, place, MADE
            )
            tile_keys = keys_of_tile(start, given, part, b, h, MADE)
            acc += gradient_after(
                tile_rows, tile_keys, entry, given, part, b, h, place, WHICH, MADE
            )
        slot = tile * BM + tl.arange(0, BM)
        row = row_of(rows, b0, slot, slot < rows.length, MADE.INDEXED)
        key, _, _ = keys_at(part, b0, start + tl.arange(0, BN), KINDS, 0)
        to = at(total, b0, head_of(rows, place0, MADE.LISTED), row)[:, None] + key[None, :]
        # Slots past the end of an order look like its first; their gradient is 0.
        some = acc != 0.0
        tl.store(to, tl.load(to, mask=some, other=0.0) + acc, mask=some)


@triton.jit
def key_gradients_of_bias(
    given, grad, limits, means, total, tile_low, tile_high, rows, part, tiles, places,
    chunk_stride, SCAN: tl.constexpr, WHICH: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """What one part adds to the gradient of a bias that has one number for all rows of a key: sums
    `(chunks, B, H, M)` over those rows, a program for a tile of keys and a chunk of the rows that
    meet it.
    """
    BN: tl.constexpr = MADE.BN
    KINDS: tl.constexpr = MADE.KINDS
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // places
    place = tl.program_id(1) % places
    h = head_of(rows, place, MADE.LISTED)
    if KINDS[0][3]:
        begin = tl.load(part.column_start + start // 64)
        end = tl.load(part.column_start + start // 64 + 1)
    else:
        begin = tiles
        end = 0
        for scan in range(0, tiles, SCAN):
            tile = scan + tl.arange(0, SCAN)
            own = tl.program_id(1) * tiles + tile
            low = tl.load(tile_low + own, mask=tile < tiles, other=2147483647)
            high = tl.load(tile_high + own, mask=tile < tiles, other=0)
            hit = (low < start + BN) & (high > start)
            begin = tl.minimum(begin, tl.min(tl.where(hit, tile, tiles), 0))
            end = tl.maximum(end, tl.max(tl.where(hit, tile + 1, 0), 0))
    step = tl.cdiv(tl.maximum(end - begin, 0), tl.num_programs(2))
    begin += tl.program_id(2) * step
    end = tl.minimum(end, begin + step)
    tile_keys = keys_of_tile(start, given, part, b, h, MADE)
    acc = tl.zeros([BN], tl.float32)
    in_row: tl.constexpr = 64 // MADE.BM if KINDS[0][3] else 1
    for work in range(begin * in_row, end * in_row):
        tile = work
        entry = 0
        if KINDS[0][3]:
            entry = tl.load(part.column_entry + work // in_row)
            tile = tl.load(part.column_rows + work // in_row) * in_row + work % in_row
        tile_rows = rows_of_tile(tile, given, grad, limits, means, rows, part, b, h, place, MADE)
        ds = gradient_after(tile_rows, tile_keys, entry, given, part, b, h, place, WHICH, MADE)
        acc += tl.sum(ds, 0)
    to = at(total, b, h, tile_keys[1]) + tl.program_id(2).to(tl.int64) * chunk_stride
    some = acc != 0.0
    tl.store(to, tl.load(to, mask=some, other=0.0) + acc, mask=some)
