"""Computes rows and keys again, one by one, in which a NaN or an infinity appeared: 0 times NaN is
NaN, so that it may be that of a pair that does not exist. Most often there are none.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ..pairs import LOG2E
from .ring import BAND, NOWHERE, PADDED, REACH

# Keys, or rows, that are looked at at once, and rows, or keys, whose marks are.
NEXT = tl.constexpr(64)
SCAN = tl.constexpr(1024)


@triton.jit
def interval_of_rows(intervals, unit, row, live, n, m, KIND: tl.constexpr):
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
def _real(intervals, b, key, seen, KIND: tl.constexpr):
    """Which of the keys that are seen are no padding."""
    if KIND == PADDED:
        place = intervals.real + b.to(tl.int64) * intervals.real_batch + key
        seen = seen & (tl.load(place, mask=seen, other=0) > 0)
    return seen


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
def _places(beside, b, h, row):
    """The gathered keys that a row sees, as the first place and one past the last."""
    low = tl.load(beside.low + b * beside.low_batch + h * beside.low_head + row)
    return low, tl.load(beside.high + b * beside.high_batch + h * beside.high_head + row)


@triton.jit
def _gathered(beside, b, place, seen):
    return tl.load(beside.positions + b * beside.positions_batch + place, mask=seen, other=0)


@triton.jit
def _bell_at(bell, key, i, scale):
    """What a bell multiplies a pair's weight by."""
    distance = (key - i).to(tl.float32)
    return tl.exp(bell * distance * distance * scale)


@triton.jit
def _add_keys(
    top, total, acc, query, k, v, b, head, key, seen, part, bell, i, scale, BELL: tl.constexpr,
    D: tl.constexpr, PD: tl.constexpr,
):  # fmt: skip
    """Adds some keys to what one row has summed, each by its part."""
    keys = _vectors(k, b, head, key, seen, D, PD)
    s = _scores(query[None, :], keys, bell, key, i, scale, BELL)
    s = tl.where(seen, s, float("-inf"))
    # A comparison with NaN would lose it.
    largest = tl.max(s, 0) + tl.sum(tl.where(seen, s * 0.0, 0.0), 0)
    new = tl.maximum(top, largest, propagate_nan=tl.PropagateNan.ALL)
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.where(seen, tl.exp(s - safe) * part, 0.0)
    old = tl.exp(top - safe)
    values = _vectors(v, b, head, key, seen, D, PD)
    total = total * old + tl.sum(p, 0)
    acc = acc * old + tl.sum(tl.where(seen[:, None], p[:, None] * values, 0.0), 0)
    return new, total, acc


@triton.jit
def repair_outputs(
    q, k, v, out, limits, intervals, beside, bells, heads, each, n, m, count, scale,
    KIND: tl.constexpr, BELL: tl.constexpr, BESIDE: tl.constexpr, OVERLAPS: tl.constexpr,
    D: tl.constexpr, PD: tl.constexpr,
):  # fmt: skip
    """Outputs and limits of rows whose limit is a NaN; `count` rows in all. OVERLAPS when it may be
    launched before the kernel before it is done.
    """
    if OVERLAPS:
        gdc_wait()
    start = tl.program_id(0) * SCAN
    scanned = start + tl.arange(0, SCAN)
    marks = tl.load(limits + scanned, mask=scanned < count, other=0.0)
    if tl.max((marks != marks).to(tl.int32), 0) > 0:
        for at in range(start, tl.minimum(start + SCAN, count)):
            mark = tl.load(limits + at)
            if mark != mark:
                row = at % n
                b = at // n // heads
                h = at // n % heads
                unit = b * intervals.per_sample + h * intervals.per_head
                i = row + (m - n)
                low, high = interval_of_rows(intervals, unit, row, True, n, m, KIND)
                bell = scale * 0.0
                if BELL:
                    bell = tl.load(bells + unit.to(tl.int64) * intervals.stride + row)
                query = _vector(q, b, h, row, D, PD)
                top = tl.full([1], float("-inf"), tl.float32)
                total = tl.zeros([1], tl.float32)
                acc = tl.zeros([PD], tl.float32)
                whole = tl.full([NEXT], 1.0, tl.float32)
                for first in range(low, high + 1, NEXT):
                    key = first + tl.arange(0, NEXT)
                    seen = _real(intervals, b, key, key <= high, KIND)
                    top, total, acc = _add_keys(
                        top, total, acc, query, k, v, b, h // each, key, seen, whole, bell, i,
                        scale, BELL, D, PD,
                    )  # fmt: skip
                if BESIDE:
                    start_place, end_place = _places(beside, b, h, row)
                    for first in range(start_place, end_place, NEXT):
                        place = first + tl.arange(0, NEXT)
                        seen = place < end_place
                        key = _gathered(beside, b, place, seen)
                        seen = _real(intervals, b, key, seen, KIND)
                        inside = (low <= key) & (key <= high)
                        part = whole
                        if BELL:
                            part = tl.where(inside, 1.0 - _bell_at(bell, key, i, scale), 1.0)
                        else:
                            seen = seen & (inside == 0)
                        top, total, acc = _add_keys(
                            top, total, acc, query, k, v, b, h // each, key, seen, part, bell, i,
                            scale, False, D, PD,
                        )  # fmt: skip
                empty = total == 0.0
                _store(out, acc / tl.where(empty, 1.0, total), b, h, row, D, PD)
                limit = tl.where(empty, float("-inf"), (top + tl.log(total)) * LOG2E)
                tl.store(limits + at + tl.arange(0, 1), limit)


@triton.jit
def _score_gradients(
    query, gradient, k, v, b, head, key, seen, bell, i, limit, mean, scale, BELL: tl.constexpr,
    D: tl.constexpr, PD: tl.constexpr,
):  # fmt: skip
    """Of one row with some keys; and the keys themselves."""
    keys = _vectors(k, b, head, key, seen, D, PD)
    values = _vectors(v, b, head, key, seen, D, PD)
    s = _scores(query[None, :], keys, bell, key, i, scale, BELL)
    ds = tl.exp2(s * LOG2E - limit) * (tl.sum(gradient[None, :] * values, 1) - mean)
    return tl.where(seen, ds, 0.0), keys


@triton.jit
def _repair_row(
    at, q, k, v, grad, dq, stats, to_bells, intervals, beside, heads, each, n, m, stride, scale,
    KIND: tl.constexpr, BELL: tl.constexpr, BESIDE: tl.constexpr, D: tl.constexpr,
    PD: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    row = at % n
    b = at // n // heads
    h = at // n % heads
    unit = b * intervals.per_sample + h * intervals.per_head
    own = stats + (at // n).to(tl.int64) * NUMBERS * stride + row
    limit = tl.load(own)
    mean = tl.load(own + stride)
    i = row + (m - n)
    low, high = interval_of_rows(intervals, unit, row, True, n, m, KIND)
    bell = scale * 0.0
    if BELL:
        bell = tl.load(own + 2 * stride)
    query = _vector(q, b, h, row, D, PD)
    gradient = _vector(grad, b, h, row, D, PD)
    acc = tl.zeros([PD], tl.float32)
    to_bell = tl.zeros([1], tl.float32)
    for first in range(low, high + 1, NEXT):
        key = first + tl.arange(0, NEXT)
        seen = _real(intervals, b, key, key <= high, KIND)
        ds, keys = _score_gradients(
            query, gradient, k, v, b, h // each, key, seen, bell, i, limit, mean, scale, BELL, D,
            PD,
        )  # fmt: skip
        acc += tl.sum(tl.where(seen[:, None], ds[:, None] * keys, 0.0), 0)
        distance = (key - i).to(tl.float32)
        to_bell += tl.sum(ds * distance * distance, 0)
    if BESIDE:
        start_place, end_place = _places(beside, b, h, row)
        for first in range(start_place, end_place, NEXT):
            place = first + tl.arange(0, NEXT)
            seen = place < end_place
            key = _gathered(beside, b, place, seen)
            seen = _real(intervals, b, key, seen, KIND)
            inside = (low <= key) & (key <= high)
            if not BELL:
                seen = seen & (inside == 0)
            ds, keys = _score_gradients(
                query, gradient, k, v, b, h // each, key, seen, bell, i, limit, mean, scale, False,
                D, PD,
            )  # fmt: skip
            if BELL:
                counted = tl.where(inside, _bell_at(bell, key, i, scale), 0.0)
                distance = (key - i).to(tl.float32)
                to_bell -= tl.sum(ds * counted * distance * distance, 0)
                ds = ds * (1.0 - counted)
            acc += tl.sum(tl.where(seen[:, None], ds[:, None] * keys, 0.0), 0)
    _store(dq, acc * scale, b, h, row, D, PD)
    if BELL:
        found = to_bell * (2.0 * scale * scale * bell * bell)
        tl.store(to_bells + at + tl.arange(0, 1), found)


@triton.jit
def _of_rows(
    q, grad, stats, own_key, own_value, b, h, heads, row, live, seen, part, key, n, m, stride,
    scale, BELL: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """What some rows add to the gradients of one key and of its value, each by its part."""
    own = stats + (b * heads + h).to(tl.int64) * NUMBERS * stride + row
    limit = tl.load(own, mask=live, other=float("inf"))
    mean = tl.load(own + stride, mask=live, other=0.0)
    bell = mean * 0.0
    if BELL:
        bell = tl.load(own + 2 * stride, mask=live, other=0.0)
    query = _vectors(q, b, h, row, live, D, PD)
    gradient = _vectors(grad, b, h, row, live, D, PD)
    s = _scores(query, own_key[None, :], bell, key, row + (m - n), scale, BELL)
    p = tl.where(seen, tl.exp2(s * LOG2E - limit) * part, 0.0)
    ds = p * (tl.sum(gradient * own_value[None, :], 1) - mean)
    seen = seen[:, None]
    to_value = tl.sum(tl.where(seen, p[:, None] * gradient, 0.0), 0)
    return tl.sum(tl.where(seen, ds[:, None] * query, 0.0), 0), to_value


@triton.jit
def _repair_key(
    at, q, k, v, grad, dk, dv, stats, intervals, columns, beside, heads, key_heads, each, n, m,
    stride, scale, KIND: tl.constexpr, BELL: tl.constexpr, BESIDE: tl.constexpr, D: tl.constexpr,
    PD: tl.constexpr, NUMBERS: tl.constexpr,
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
            low, high = interval_of_rows(intervals, unit, row, live, n, m, KIND)
            seen = live & (low <= key) & (key <= high)
            more_key, more_value = _of_rows(
                q, grad, stats, own_key, own_value, b, h, heads, row, live, seen, 1.0, key, n, m,
                stride, scale, BELL, D, PD, NUMBERS,
            )  # fmt: skip
            to_key += more_key
            to_value += more_value
        if BESIDE:
            for start in range(0, beside.length, NEXT):
                place = start + tl.arange(0, NEXT)
                live = place < beside.length
                row = _gathered(beside, b, place, live)
                low, high = interval_of_rows(intervals, unit, row, live, n, m, KIND)
                taken = (low <= key) & (key <= high)
                low = beside.low + b * beside.low_batch + h * beside.low_head + place
                high = beside.high + b * beside.high_batch + h * beside.high_head + place
                low = tl.load(low, mask=live, other=0)
                high = tl.load(high, mask=live, other=0)
                # Places behind a sample's own have other tokens in them.
                live = live & (low < high)
                part = ((low <= key) & (key < high)).to(tl.float32) - taken.to(tl.float32)
                seen = live & (part != 0.0)
                more_key, more_value = _of_rows(
                    q, grad, stats, own_key, own_value, b, h, heads, row, live, seen, part, key, n,
                    m, stride, scale, False, D, PD, NUMBERS,
                )  # fmt: skip
                to_key += more_key
                to_value += more_value
    _store(dk, to_key * scale, b, key_head, key, D, PD)
    _store(dv, to_value, b, key_head, key, D, PD)


@triton.jit
def repair_gradients(
    q, k, v, grad, dq, dk, dv, stats, to_bells, row_checks, key_checks, intervals, columns,
    keys_beside, rows_beside, heads, key_heads, each, n, m, rows, keys, row_programs, stride, scale,
    KIND: tl.constexpr, BELL: tl.constexpr, KEYS_BESIDE: tl.constexpr, ROWS_BESIDE: tl.constexpr,
    OVERLAPS: tl.constexpr, D: tl.constexpr, PD: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Gradients of rows and of keys whose check is a NaN; `rows` and `keys` in all. OVERLAPS as
    above.
    """
    if OVERLAPS:
        gdc_wait()
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
                        at, q, k, v, grad, dq, stats, to_bells, intervals, keys_beside, heads,
                        each, n, m, stride, scale, KIND, BELL, KEYS_BESIDE, D, PD, NUMBERS,
                    )  # fmt: skip
            else:
                mark = tl.load(key_checks + at)
                if mark != mark:
                    _repair_key(
                        at, q, k, v, grad, dk, dv, stats, intervals, columns, rows_beside, heads,
                        key_heads, each, n, m, stride, scale, KIND, BELL, ROWS_BESIDE, D, PD,
                        NUMBERS,
                    )  # fmt: skip
