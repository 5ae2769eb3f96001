"""Rows and keys of global tokens, gathered into tiles of their own, which TMA can read."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .repair import interval_of_rows
from .ring import GATHERED_NUMBERS, NOWHERE


class Beside(NamedTuple):
    """Tokens that are gathered: keys that rows see beside their interval, or rows that see more
    than it.

    `positions`, int32 `(B|1, length)`, says where they are. `low` and `high` are int32
    `(B|1, H|1, …)`: of keys for every row an interval of places in the gathered order, of rows for
    every one of them an interval of keys.
    """

    positions: Any
    positions_batch: int
    low: Any
    low_batch: int
    low_head: int
    high: Any
    high_batch: int
    high_head: int
    length: int


@triton.jit
def _copied(x, to, b, h, unit, row, slot, live, length, D: tl.constexpr, PD: tl.constexpr):
    d = tl.arange(0, PD)
    own = live[:, None] & (d < D)[None, :]
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    values = tl.load(start + row.to(tl.int64)[:, None] * x.row + d[None, :], mask=own)
    place = (unit.to(tl.int64) * length + slot)[:, None] * D + d[None, :]
    tl.store(to + place, values, mask=own)


@triton.jit
def gather_keys(
    k, v, to_k, to_v, beside, heads, D: tl.constexpr, PD: tl.constexpr, ROWS: tl.constexpr
):
    """Keys and values at the gathered positions, `(B, Hk, length, D)`."""
    unit = tl.program_id(1)
    b = unit // heads
    h = unit % heads
    slot = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = slot < beside.length
    row = tl.load(beside.positions + b * beside.positions_batch + slot, mask=live, other=0)
    _copied(k, to_k, b, h, unit, row, slot, live, beside.length, D, PD)
    _copied(v, to_v, b, h, unit, row, slot, live, beside.length, D, PD)


@triton.jit
def gather_rows(
    q, grad, to_q, to_grad, stats, numbers, intervals, beside, heads, n, m, stride, own_stride,
    KIND: tl.constexpr, BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, ROWS: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    """Queries and output gradients at the gathered positions, `(B, H, length, D)`, and the numbers
    of these rows, float32 `(B·H, GATHERED_NUMBERS, own_stride)`.

    `stats`, which has the numbers of all rows, is told that no bell acts on these: then the keys'
    kernel finds for them what is right wherever their interval among the others reaches.
    """
    unit = tl.program_id(1)
    b = unit // heads
    h = unit % heads
    slot = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = slot < beside.length
    row = tl.load(beside.positions + b * beside.positions_batch + slot, mask=live, other=0)
    _copied(q, to_q, b, h, unit, row, slot, live, beside.length, D, PD)
    _copied(grad, to_grad, b, h, unit, row, slot, live, beside.length, D, PD)
    own_low = beside.low + b * beside.low_batch + h * beside.low_head
    own_high = beside.high + b * beside.high_batch + h * beside.high_head
    own_low = tl.load(own_low + slot, mask=live, other=0)
    own_high = tl.load(own_high + slot, mask=live, other=0) - 1
    # A sample with fewer global tokens than another has other tokens in its last places.
    real = live & (own_low <= own_high)
    at = stats + unit.to(tl.int64) * NUMBERS * stride + row
    to = numbers + unit.to(tl.int64) * GATHERED_NUMBERS * own_stride + slot
    tl.store(to, tl.load(at, mask=real, other=float("inf")), mask=live)
    tl.store(to + own_stride, tl.load(at + stride, mask=real, other=0.0), mask=live)
    if BELL:
        tl.store(at + 2 * stride, tl.zeros([ROWS], tl.float32), mask=real)
    known = b * intervals.per_sample + h * intervals.per_head
    low, high = interval_of_rows(intervals, known, row, real, n, m, KIND)
    low, width = _as_floats(low, high, real)
    tl.store(to + 2 * own_stride, low, mask=live)
    tl.store(to + 3 * own_stride, width, mask=live)
    low, width = _as_floats(own_low, own_high, real)
    tl.store(to + 4 * own_stride, low, mask=live)
    tl.store(to + 5 * own_stride, width, mask=live)


@triton.jit
def _as_floats(low, high, real):
    """An interval as its first key and how many follow, ints in the bits of floats."""
    some = real & (low <= high)
    low = tl.where(some, low, NOWHERE)
    width = tl.where(some, high - low, 0)
    return low.to(tl.float32, bitcast=True), width.to(tl.float32, bitcast=True)
