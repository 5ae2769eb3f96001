"""What the kernels for Hopper know about rows before they start: reaches, bells, and which keys a
tile of rows meets. One launch for a bell that changes; kept with the layout where nothing does.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....weights import conversions
from .ring import NOWHERE, PADDED, REACH

SLACK = tl.constexpr(conversions.SLACK)

# Nothing but a row's own key is left under it, and its square is a number still.
LOWEST = tl.constexpr(-1e18)
NARROWEST = tl.constexpr(conversions.NARROWEST)


@triton.jit
def _write_table(
    table, entry, low, high, live, inside, BM: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """For each of TILES tiles its first key, its steps, the steps at which those without an edge
    begin and end, and its last key.
    """
    some = tl.reshape(live & (low <= high), (TILES, BM))
    gap = tl.reshape(live & (low > high), (TILES, BM))
    low = tl.reshape(low, (TILES, BM))
    high = tl.reshape(high, (TILES, BM))
    first = tl.min(tl.where(some, low, NOWHERE), 1)
    last = tl.max(tl.where(some, high, -1), 1)
    first = tl.minimum(first, tl.maximum(last, 0))
    steps = tl.maximum(last - first, 0) // BN + 1
    lower_ends = tl.max(tl.where(some, low, 0), 1)
    upper_starts = tl.min(tl.where(some, high, NOWHERE), 1)
    lower = tl.minimum(tl.maximum(lower_ends - first + BN - 1, 0) // BN, steps)
    upper = tl.minimum(tl.maximum(upper_starts + 1 - first, 0) // BN, steps)
    # A row without keys has an edge everywhere.
    gaps = tl.max(gap.to(tl.int32), 1) > 0
    to = table + entry * 5
    tl.store(to, first, mask=inside)
    tl.store(to + 1, steps, mask=inside)
    tl.store(to + 2, tl.where(gaps, steps, lower), mask=inside)
    tl.store(to + 3, tl.where(gaps, 0, upper), mask=inside)
    tl.store(to + 4, last, mask=inside)


@triton.jit
def padding_of_keys(real, padding, m, stride, SCAN: tl.constexpr):
    """For every sample its first and its last real key, and whether padding lies between them,
    int32 `(B, 3)`; `real` is uint8 `(B, M)`.
    """
    b = tl.program_id(0)
    start = real + b.to(tl.int64) * stride
    first = tl.full([SCAN], NOWHERE, tl.int32)
    last = tl.full([SCAN], -1, tl.int32)
    count = tl.zeros([SCAN], tl.int32)
    for scan in range(0, m, SCAN):
        key = scan + tl.arange(0, SCAN)
        there = tl.load(start + key, mask=key < m, other=0) > 0
        first = tl.minimum(first, tl.where(there, key, NOWHERE))
        last = tl.maximum(last, tl.where(there, key, -1))
        count += there.to(tl.int32)
    low = tl.min(first, 0)
    high = tl.max(last, 0)
    between = (high >= low) & (tl.sum(count, 0) < high - low + 1)
    tl.store(padding + b * 3, low)
    tl.store(padding + b * 3 + 1, high)
    tl.store(padding + b * 3 + 2, between.to(tl.int32))


@triton.jit
def _within_real(first, last, padding, b, KIND: tl.constexpr):
    """Intervals that end where a sample's real keys do."""
    if KIND == PADDED:
        first = tl.maximum(first, tl.load(padding + b * 3))
        last = tl.minimum(last, tl.load(padding + b * 3 + 1))
    return first, last


@triton.jit
def rows_of_bells(
    variance, bells, low, high, padding, rows, widths, table, n, m, left, right, most, scale,
    stride, heads, tiles, CURVE: tl.constexpr, KIND: tl.constexpr, CUT: tl.constexpr,
    ARRAYS: tl.constexpr, TABLE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """What d² is multiplied by before the scale, for every row of a bell, `(units, stride)`; and,
    with a TABLE, its interval in the kernels' form, and the table.

    The interval is what the pattern has, i − left … i + right or [low, high) from ARRAYS, as far as
    the row's reach goes, if the bell CUTs.

    Args:
        variance: its data and strides.
        padding: see `padding_of_keys`; for intervals that are PADDED.
        most: the farthest that a row may look in any case.
        CURVE: −2·ln threshold; among the arguments it would be rounded to float32.
    """
    block = tl.program_id(0)
    unit = tl.program_id(1)
    b = (unit // heads).to(tl.int64)
    h = (unit % heads).to(tl.int64)
    row = block * (BM * TILES) + tl.arange(0, BM * TILES)
    live = row < n
    place = variance.data + b * variance.batch + h * variance.head
    own = tl.load(place + row.to(tl.int64) * variance.row, mask=live, other=1.0)
    to = unit.to(tl.int64) * stride + row
    # An infinity, of a small scale, would make NaN of the row's own key, at a distance of 0.
    bell = tl.maximum(-0.5 / (scale * tl.maximum(own, NARROWEST)), LOWEST)
    tl.store(bells + to, tl.where(own > 0.0, bell, float("nan")), mask=live)
    if TABLE:
        reach = tl.zeros([BM * TILES], tl.int32) + most
        if CUT:
            # As `weights.reach_of`. NaN, and what is below 0, see themselves alone.
            curve = tl.full([BM * TILES], CURVE, tl.float64)
            square = tl.where(own > 0.0, own.to(tl.float64) * curve, 0.0)
            far = tl.floor(tl.sqrt(square) + tl.full([BM * TILES], SLACK, tl.float64))
            reach = tl.minimum(far, most.to(tl.float64)).to(tl.int32)
        i = row + (m - n)
        if ARRAYS:
            start = low.data + b * low.batch + h * low.head
            first = tl.maximum(tl.load(start + row, mask=live, other=0), i - reach)
            start = high.data + b * high.batch + h * high.head
            last = tl.minimum(tl.load(start + row, mask=live, other=0) - 1, i + reach)
        else:
            first = tl.maximum(i - tl.minimum(reach, left), 0)
            last = tl.minimum(i + tl.minimum(reach, right), m - 1)
        first, last = _within_real(first, last, padding, b, KIND)
        if KIND == REACH:
            tl.store(rows + to, tl.minimum(reach, left).to(tl.float32), mask=live)
        else:
            some = first <= last
            tl.store(rows + to, tl.where(some, first, NOWHERE), mask=live)
            tl.store(widths + to, tl.where(some, last - first, 0), mask=live)
        tile = block * TILES + tl.arange(0, TILES)
        entry = unit * tiles + tile
        _write_table(table, entry, first, last, live, tile < tiles, BM, BN, TILES)


@triton.jit
def rows_of_arrays(
    low, high, padding, rows, widths, table, n, stride, heads, tiles, KIND: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Intervals [low, high) in the kernels' form, and their table."""
    block = tl.program_id(0)
    unit = tl.program_id(1)
    b = (unit // heads).to(tl.int64)
    h = (unit % heads).to(tl.int64)
    row = block * (BM * TILES) + tl.arange(0, BM * TILES)
    live = row < n
    first = tl.load(low.data + b * low.batch + h * low.head + row, mask=live, other=0)
    last = tl.load(high.data + b * high.batch + h * high.head + row, mask=live, other=0) - 1
    first, last = _within_real(first, last, padding, b, KIND)
    some = first <= last
    to = unit.to(tl.int64) * stride + row
    tl.store(rows + to, tl.where(some, first, NOWHERE), mask=live)
    tl.store(widths + to, tl.where(some, last - first, 0), mask=live)
    tile = block * TILES + tl.arange(0, TILES)
    entry = unit * tiles + tile
    _write_table(table, entry, first, last, live, tile < tiles, BM, BN, TILES)


@triton.jit
def columns_of_rows(
    table, columns, tiles, key_tiles, BM: tl.constexpr, BN: tl.constexpr, KEYS: tl.constexpr,
    SCAN: tl.constexpr,
):  # fmt: skip
    """For every tile of keys the first row that meets it, and in how many steps of BM the others
    follow; KEYS of them at once.
    """
    key_tile = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    unit = tl.program_id(1)
    start = (key_tile * BN)[:, None]
    first_tile = tl.zeros([KEYS], tl.int32) + tiles
    last_tile = tl.full([KEYS], -1, tl.int32)
    for scan in range(0, tiles, SCAN):
        tile = scan + tl.arange(0, SCAN)
        entry = table + (unit * tiles + tile) * 5
        low = tl.load(entry, mask=tile < tiles, other=NOWHERE)[None, :]
        high = tl.load(entry + 4, mask=tile < tiles, other=-1)[None, :]
        hit = (low < start + BN) & (high >= start)
        first_tile = tl.minimum(first_tile, tl.min(tl.where(hit, tile[None, :], tiles), 1))
        last_tile = tl.maximum(last_tile, tl.max(tl.where(hit, tile[None, :], -1), 1))
    found = first_tile <= last_tile
    to = columns + (unit * key_tiles + key_tile) * 2
    tl.store(to, tl.where(found, first_tile * BM, 0), mask=key_tile < key_tiles)
    steps = tl.where(found, last_tile - first_tile + 1, 1)
    tl.store(to + 1, steps, mask=key_tile < key_tiles)
