"""Computes rows and keys again, one by one, in which a NaN or an infinity appeared: 0 times NaN is
NaN, so that it may be that of a pair that does not exist. Most often there are none.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..pairs import LOG2E
from .ring import BAND, NOWHERE, REACH

# Keys, or rows, that are looked at at once, and rows, or keys, whose marks are.
NEXT = tl.constexpr(64)
SCAN = tl.constexpr(1024)


@triton.jit
def _interval(intervals, unit, row, live, n, m, KIND: tl.constexpr):
    """First and last key of rows, as positions; none where the last is below the first."""
    i = row + (m - n)
    if KIND == BAND:
        low = tl.maximum(i - intervals.left, 0)
        high = tl.minimum(i + intervals.right, m - 1)
    elif KIND == REACH:
        own = unit.to(tl.int64) * intervals.stride + row
        reach = tl.load(intervals.rows + own, mask=live, other=-1.0).to(tl.int32)
        low = tl.maximum(i - reach, 0)
        high = tl.minimum(i + reach, m - 1)
    else:
        own = unit.to(tl.int64) * intervals.stride + row
        low = tl.load(intervals.rows + own, mask=live, other=NOWHERE)
        high = low + tl.load(intervals.widths + own, mask=live, other=0)
        high = tl.where(low < NOWHERE, high, -1)
    return low, high


@triton.jit
def _vectors(x, b, h, row, live, D: tl.constexpr, PD: tl.constexpr):
    """Rows `(…, PD)` of `(B, H, N, D)`, in float32."""
    d = tl.arange(0, PD)
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    place = start + row.to(tl.int64)[:, None] * x.row + d[None, :]
    return tl.load(place, mask=live[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _vector(x, b, h, row, D: tl.constexpr, PD: tl.constexpr):
    """One row of it, `(PD,)`."""
    d = tl.arange(0, PD)
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    return tl.load(start + row.to(tl.int64) * x.row + d, mask=d < D, other=0.0).to(tl.float32)


@triton.jit
def _store(x, values, b, h, row, D: tl.constexpr, PD: tl.constexpr):
    d = tl.arange(0, PD)
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    tl.store(start + row.to(tl.int64) * x.row + d, values, mask=d < D)


@triton.jit
def _scores(
    query, keys, bell, key, i, scale, BELL: tl.constexpr,
):  # fmt: skip
    """Of one row with some keys, or of some rows with one key."""
    s = tl.sum(query * keys, 1)
    if BELL:
        distance = (key - i).to(tl.float32)
        s += bell * distance * distance
    return s * scale


@triton.jit
def repair_outputs(
    q, k, v, out, limits, intervals, bells, heads, each, n, m, count, scale, KIND: tl.constexpr,
    BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr,
):  # fmt: skip
    """Outputs and limits of rows whose limit is a NaN; `count` rows in all."""
    start = tl.program_id(0) * SCAN
    place = start + tl.arange(0, SCAN)
    marks = tl.load(limits + place, mask=place < count, other=0.0)
    if tl.max((marks != marks).to(tl.int32), 0) > 0:
        for at in range(start, tl.minimum(start + SCAN, count)):
            mark = tl.load(limits + at)
            if mark != mark:
                row = at % n
                b = at // n // heads
                h = at // n % heads
                unit = b * intervals.per_sample + h * intervals.per_head
                i = row + (m - n)
                low, high = _interval(intervals, unit, row, True, n, m, KIND)
                bell = scale * 0.0
                if BELL:
                    bell = tl.load(bells + unit.to(tl.int64) * intervals.stride + row)
                query = _vector(q, b, h, row, D, PD)
                top = tl.full([1], float("-inf"), tl.float32)
                total = tl.zeros([1], tl.float32)
                acc = tl.zeros([PD], tl.float32)
                for first in range(low, high + 1, NEXT):
                    key = first + tl.arange(0, NEXT)
                    seen = key <= high
                    keys = _vectors(k, b, h // each, key, seen, D, PD)
                    s = _scores(query[None, :], keys, bell, key, i, scale, BELL)
                    s = tl.where(seen, s, float("-inf"))
                    # A comparison with NaN would lose it.
                    largest = tl.max(s, 0) + tl.sum(tl.where(seen, s * 0.0, 0.0), 0)
                    new = tl.maximum(top, largest, propagate_nan=tl.PropagateNan.ALL)
                    safe = tl.where(new == float("-inf"), 0.0, new)
                    p = tl.where(seen, tl.exp(s - safe), 0.0)
                    old = tl.exp(top - safe)
                    values = _vectors(v, b, h // each, key, seen, D, PD)
                    total = total * old + tl.sum(p, 0)
                    acc = acc * old + tl.sum(tl.where(seen[:, None], p[:, None] * values, 0.0), 0)
                    top = new
                empty = total == 0.0
                _store(out, acc / tl.where(empty, 1.0, total), b, h, row, D, PD)
                limit = tl.where(empty, float("-inf"), top + tl.log(total))
                tl.store(limits + at + tl.arange(0, 1), limit)


@triton.jit
def _repair_row(
    at, q, k, v, grad, dq, stats, to_bells, intervals, heads, each, n, m, stride, scale,
    KIND: tl.constexpr, BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    row = at % n
    b = at // n // heads
    h = at // n % heads
    unit = b * intervals.per_sample + h * intervals.per_head
    own = stats + (at // n).to(tl.int64) * NUMBERS * stride + row
    limit = tl.load(own)
    mean = tl.load(own + stride)
    i = row + (m - n)
    low, high = _interval(intervals, unit, row, True, n, m, KIND)
    bell = scale * 0.0
    if BELL:
        bell = tl.load(own + 2 * stride)
    query = _vector(q, b, h, row, D, PD)
    gradient = _vector(grad, b, h, row, D, PD)
    acc = tl.zeros([PD], tl.float32)
    to_bell = tl.zeros([1], tl.float32)
    for first in range(low, high + 1, NEXT):
        key = first + tl.arange(0, NEXT)
        seen = key <= high
        keys = _vectors(k, b, h // each, key, seen, D, PD)
        values = _vectors(v, b, h // each, key, seen, D, PD)
        s = _scores(query[None, :], keys, bell, key, i, scale, BELL)
        ds = tl.exp2(s * LOG2E - limit) * (tl.sum(gradient[None, :] * values, 1) - mean)
        ds = tl.where(seen, ds, 0.0)
        acc += tl.sum(tl.where(seen[:, None], ds[:, None] * keys, 0.0), 0)
        distance = (key - i).to(tl.float32)
        to_bell += tl.sum(ds * distance * distance, 0)
    _store(dq, acc * scale, b, h, row, D, PD)
    if BELL:
        found = to_bell * (2.0 * scale * scale * bell * bell)
        tl.store(to_bells + at + tl.arange(0, 1), found)


@triton.jit
def _repair_key(
    at, q, k, v, grad, dk, dv, stats, intervals, columns, heads, key_heads, each, n, m, stride,
    scale, KIND: tl.constexpr, BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr,
    NUMBERS: tl.constexpr,
):  # fmt: skip
    key = at % m
    b = at // m // key_heads
    key_head = at // m % key_heads
    own_key = _vector(k, b, key_head, key, D, PD)
    own_value = _vector(v, b, key_head, key, D, PD)
    to_key = tl.zeros([PD], tl.float32)
    to_value = tl.zeros([PD], tl.float32)
    for head in range(key_head * each, key_head * each + each):
        # A tensor, also where a loop counts in Python's numbers.
        h = head + key_head * 0
        unit = b * intervals.per_sample + h * intervals.per_head
        if KIND == BAND:
            first = tl.maximum(key - (m - n) - intervals.right, 0)
            last = tl.minimum(key - (m - n) + intervals.left, n - 1)
        else:
            entry = columns + (unit * ((m + NEXT - 1) // NEXT) + key // NEXT) * 2
            first = tl.load(entry)
            last = tl.minimum(first + tl.load(entry + 1) * NEXT, n) - 1
        for start in range(first, last + 1, NEXT):
            row = start + tl.arange(0, NEXT)
            live = row <= last
            low, high = _interval(intervals, unit, row, live, n, m, KIND)
            seen = live & (low <= key) & (key <= high)
            own = stats + (b * heads + h).to(tl.int64) * NUMBERS * stride + row
            limit = tl.load(own, mask=live, other=float("inf"))
            mean = tl.load(own + stride, mask=live, other=0.0)
            bell = mean * 0.0
            if BELL:
                bell = tl.load(own + 2 * stride, mask=live, other=0.0)
            query = _vectors(q, b, h, row, live, D, PD)
            gradient = _vectors(grad, b, h, row, live, D, PD)
            s = _scores(query, own_key[None, :], bell, key, row + (m - n), scale, BELL)
            p = tl.where(seen, tl.exp2(s * LOG2E - limit), 0.0)
            ds = p * (tl.sum(gradient * own_value[None, :], 1) - mean)
            seen = seen[:, None]
            to_value += tl.sum(tl.where(seen, p[:, None] * gradient, 0.0), 0)
            to_key += tl.sum(tl.where(seen, ds[:, None] * query, 0.0), 0)
    _store(dk, to_key * scale, b, key_head, key, D, PD)
    _store(dv, to_value, b, key_head, key, D, PD)


@triton.jit
def repair_gradients(
    q, k, v, grad, dq, dk, dv, stats, to_bells, row_checks, key_checks, intervals, columns, heads,
    key_heads, each, n, m, rows, keys, row_programs, stride, scale, KIND: tl.constexpr,
    BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Gradients of rows and of keys whose check is a NaN; `rows` and `keys` in all."""
    program = tl.program_id(0)
    of_rows = program < row_programs
    start = tl.where(of_rows, program, program - row_programs) * SCAN
    count = tl.where(of_rows, rows, keys)
    place = start + tl.arange(0, SCAN)
    if of_rows:
        marks = tl.load(row_checks + place, mask=place < count, other=0.0)
    else:
        marks = tl.load(key_checks + place, mask=place < count, other=0.0)
    if tl.max((marks != marks).to(tl.int32), 0) > 0:
        for at in range(start, tl.minimum(start + SCAN, count)):
            if of_rows:
                mark = tl.load(row_checks + at)
                if mark != mark:
                    _repair_row(
                        at, q, k, v, grad, dq, stats, to_bells, intervals, heads, each, n, m,
                        stride, scale, KIND, BELL, D, PD, NUMBERS,
                    )  # fmt: skip
            else:
                mark = tl.load(key_checks + at)
                if mark != mark:
                    _repair_key(
                        at, q, k, v, grad, dk, dv, stats, intervals, columns, heads, key_heads,
                        each, n, m, stride, scale, KIND, BELL, D, PD, NUMBERS,
                    )  # fmt: skip
