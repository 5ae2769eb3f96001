"""The forward pass: one program for a tile of query rows of one sample and head.

Where a walk has few rows its keys are split: a program has one chunk of them, writes what it has
summed to a side buffer, and one more kernel puts a row's chunks together, in order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pairs import (
    LN2,
    LOG2E,
    at_turn,
    careful_dot,
    interval,
    key_range,
    keys_at,
    load_rows,
    load_tile,
    multiplier,
    narrowed,
    pairs_of,
    place_of,
    scores,
    store_rows,
    tile_words,
    turns_of,
)


@triton.jit
def _step(
    top, total, acc, q, given, part, at_rows, low, high, start, words, P: tl.constexpr,
    INNER: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """One tile of keys. Of an inner one every pair exists whose key is not struck out."""
    b, h, _, slot, live, row, i = at_rows
    head = h // given.each
    KINDS: tl.constexpr = MADE.KINDS
    TERMS: tl.constexpr = MADE.TERMS
    REACHES: tl.constexpr = MADE.REACHES
    BN: tl.constexpr = KINDS[P][6]
    key_slot = start + tl.arange(0, BN)
    key, inside, present = keys_at(part, b, key_slot, KINDS, P)
    keys = load_tile(
        given.k, b, head, start, key, inside, MADE.D, MADE.PD, BN, KINDS[P][0], not INNER
    )
    s = tl.dot(q, tl.trans(keys), input_precision=MADE.PRECISION)
    exists = tl.full([MADE.BM, BN], True, tl.int1)
    if not INNER:
        exists = pairs_of(
            part, given.reaches, b, h, slot, live, row, i, low, high, key_slot, key, present,
            words, KINDS, P, REACHES,
        )  # fmt: skip
    elif KINDS[P][1]:
        exists = exists & present[None, :]
    s, exists = scores(
        s, exists, given.terms, given.scale, b, h, row, live, i, key, KINDS[P][4], TERMS
    )
    s = tl.where(exists, s, float("-inf"))
    new = tl.maximum(top, tl.max(s, 1))
    shift = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(s - shift[:, None])
    old = tl.exp2(top - shift)
    total = total * old + tl.sum(p, 1)
    if MADE.DROPOUT or MADE.FACTORS:
        p *= multiplier(
            given.terms, given.drop, b, h, row, live, i, key, start, KINDS[P][0],
            KINDS[P][4], TERMS, MADE.DROPOUT, MADE.BM, BN,
        )  # fmt: skip
    values = load_tile(
        given.v, b, head, start, key, inside, MADE.DV, MADE.PDV, BN, KINDS[P][0], not INNER
    )
    acc = acc * old[:, None]
    if MADE.CAREFUL:
        acc = careful_dot(p, exists, values, acc, BN)
    else:
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision=MADE.PRECISION)
    return new, total, acc


@triton.jit
def _all_keys(q, given, parts, at_rows, tile, chunk, MADE: tl.constexpr):
    """The rows' largest score, sum and weighted values."""
    BM: tl.constexpr = MADE.BM
    PDV: tl.constexpr = MADE.PDV
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, PDV], tl.float32)
    b, h, place, slot, live, row, i = at_rows
    KINDS: tl.constexpr = MADE.KINDS
    REACHES: tl.constexpr = MADE.REACHES
    for p in tl.static_range(len(KINDS)):
        part = parts[p]
        low, high = interval(
            part, given.reaches, b, h, place, slot, live, row, i, KINDS, p, REACHES
        )
        if MADE.CHUNKS > 1:
            low, high = narrowed(low, high, part.length, chunk, MADE.CHUNKS)
        if KINDS[p][3]:
            first_turn, end_turn = turns_of(part.start, tile * BM // 64, KINDS[p][6])
            for turn in range(first_turn, end_turn):
                entry, piece = at_turn(part.columns, turn, KINDS[p][6])
                words = tile_words(part, b, place, slot, entry, KINDS, p)
                start = piece * KINDS[p][6]
                top, total, acc = _step(
                    top, total, acc, q, given, part, at_rows, low, high, start, words, p,
                    False, MADE,
                )  # fmt: skip
        else:
            words = tl.zeros([BM], tl.int64)
            edges = key_range(low, high, KINDS[p][6], MADE.PLAIN[p])
            for segment in tl.static_range(3 if MADE.PLAIN[p] else 1):
                for start in range(edges[segment], edges[segment + 1], KINDS[p][6]):
                    top, total, acc = _step(
                        top, total, acc, q, given, part, at_rows, low, high, start, words, p,
                        segment == 1, MADE,
                    )  # fmt: skip
    return top, total, acc


@triton.jit
def _power(x):
    """2 to the x in float64, of which CUDA has no power of two."""
    return tl.exp(x * LN2)


@triton.jit
def _finish(top, total, acc, out, limits, at_rows, own, MADE: tl.constexpr):
    """Writes rows of which every pair is summed."""
    b, h, _, _, _, row, _ = at_rows
    empty = total == 0.0
    y = acc / tl.where(empty, 1.0, total)[:, None]
    limit = top.to(tl.float64) + tl.log2(total).to(tl.float64)
    limit = tl.where(empty, float("-inf"), limit)
    if MADE.MERGED:
        known = tl.load(at_limits(limits, b, h, row), mask=own, other=float("-inf"))
        larger = tl.maximum(known, limit)
        safe = tl.where(larger == float("-inf"), 0.0, larger)
        both = safe + tl.log(_power(known - safe) + _power(limit - safe)) * LOG2E
        both = tl.where(larger == float("-inf"), float("-inf"), both)
        base = tl.where(larger == float("-inf"), 0.0, both)
        before = load_rows(out, b, h, row, own, MADE.DV, MADE.PDV)
        y = y * _power(limit - base).to(tl.float32)[:, None]
        y += before * _power(known - base).to(tl.float32)[:, None]
        limit = both
    store_rows(out, y, b, h, row, own, MADE.DV, MADE.PDV, False)
    tl.store(at_limits(limits, b, h, row), limit, mask=own)


@triton.jit
def _attend(
    tile, unit, given, out, limits, side, broken, rows, parts, places, tiles, MADE: tl.constexpr
):
    """One tile of rows and one chunk of their keys; a sample and head has CHUNKS units."""
    at_rows = place_of(rows, tile, unit // MADE.CHUNKS, given.shift, places, MADE)
    b, h, _, slot, live, row, _ = at_rows
    query = load_tile(
        given.q, b, h, tile * MADE.BM, row, live, MADE.D, MADE.PD, MADE.BM, MADE.INDEXED, True
    )
    top, total, acc = _all_keys(query, given, parts, at_rows, tile, unit % MADE.CHUNKS, MADE)
    own = live
    if MADE.CHUNKS == 1 and not MADE.FIRST:
        own = live & some_interval(given, parts, at_rows, MADE)
    if not MADE.CAREFUL:
        # Rows with a NaN are left to `repair`: it may be another row's.
        bad = tl.max((acc != acc).to(tl.int32))
        tl.store(broken + unit * tiles + tile, bad)
        own = own & ((slot * 0 + bad) == 0)
    if MADE.CHUNKS == 1:
        _finish(top, total, acc, out, limits, at_rows, own, MADE)
    else:
        store_rows(side.sums, acc, unit * 0, unit, slot, own, MADE.DV, MADE.PDV, False)
        tl.store(at_limits(side.top, unit * 0, unit, slot), top, mask=own)
        tl.store(at_limits(side.total, unit * 0, unit, slot), total, mask=own)


@triton.jit
def outputs(given, out, limits, side, broken, rows, parts, places, tiles, MADE: tl.constexpr):
    """Attention of a walk's rows, and their log-sum-exp; or, of several CHUNKS, what each sums."""
    tile, unit = tl.program_id(0), tl.program_id(1)
    _attend(tile, unit, given, out, limits, side, broken, rows, parts, places, tiles, MADE)


@triton.jit
def repair_outputs(
    given, out, limits, side, broken, rows, parts, places, tiles, units, MADE: tl.constexpr,
    PIECES: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair. Most often there are none."""
    start = tl.program_id(0) * SPAN
    if has_broken(broken, start, tiles * units, SPAN):
        for work in range(start, tl.minimum(start + SPAN, tiles * units)):
            if tl.load(broken + work) > 0:
                for piece in range(PIECES):
                    _attend(
                        work % tiles * PIECES + piece, work // tiles, given, out, limits, side,
                        broken, rows, parts, places, tiles, MADE,
                    )  # fmt: skip


@triton.jit
def join_outputs(given, out, limits, side, rows, parts, places, MADE: tl.constexpr):
    """Puts the chunks of a walk's rows together."""
    CHUNKS: tl.constexpr = MADE.CHUNKS
    BM: tl.constexpr = MADE.BM
    PDV: tl.constexpr = MADE.PDV
    unit = tl.program_id(1)
    at_rows = place_of(rows, tl.program_id(0), unit, given.shift, places, MADE)
    slot, live = at_rows.slot, at_rows.live
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, PDV], tl.float32)
    for chunk in tl.static_range(CHUNKS):
        own = unit * CHUNKS + chunk
        more_top = tl.load(at_limits(side.top, unit * 0, own, slot), mask=live, other=float("-inf"))
        more_total = tl.load(at_limits(side.total, unit * 0, own, slot), mask=live, other=0.0)
        more = load_rows(side.sums, unit * 0, own, slot, live, MADE.DV, PDV)
        new = tl.maximum(top, more_top)
        safe = tl.where(new == float("-inf"), 0.0, new)
        old = tl.exp2(top - safe)
        fresh = tl.exp2(more_top - safe)
        total = total * old + more_total * fresh
        acc = acc * old[:, None] + more * fresh[:, None]
        top = new
    to = live
    if not MADE.FIRST:
        to = live & some_interval(given, parts, at_rows, MADE)
    _finish(top, total, acc, out, limits, at_rows, to, MADE)


@triton.jit
def some_interval(given, parts, at_rows, MADE: tl.constexpr):
    """Which rows have an interval in one of the parts."""
    BM: tl.constexpr = MADE.BM
    KINDS: tl.constexpr = MADE.KINDS
    REACHES: tl.constexpr = MADE.REACHES
    b, h, place, slot, live, row, i = at_rows
    some = tl.zeros([BM], tl.int1)
    for p in tl.static_range(len(KINDS)):
        low, high = interval(
            parts[p], given.reaches, b, h, place, slot, live, row, i, KINDS, p, REACHES
        )
        some = some | (low < high)
    return some


@triton.jit
def has_broken(broken, start, count, SPAN: tl.constexpr):
    """Whether one of the tiles from `start` on has to be repaired."""
    place = start + tl.arange(0, SPAN)
    return tl.max(tl.load(broken + place, mask=place < count, other=0), 0) > 0


@triton.jit
def at_limits(limits, b, h, row):
    return limits.data + b.to(tl.int64) * limits.batch + h.to(tl.int64) * limits.head + row


@triton.jit
def load_limits(limits, b, h, row, live):
    """Log-sum-exps of some rows, times log2(e), as they are kept; ∞ for a row without pairs:
    nothing of it exists.
    """
    limit = tl.load(at_limits(limits, b, h, row), mask=live, other=float("-inf"))
    return tl.where(limit == float("-inf"), float("inf"), limit).to(tl.float32)
