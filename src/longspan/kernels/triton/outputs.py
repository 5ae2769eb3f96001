"""The forward pass: one program for a tile of query rows of one sample and head."""

from __future__ import annotations

import triton
import triton.language as tl

from .pairs import (
    FINE,
    LN2,
    careful_dot,
    head_of,
    interval,
    key_range,
    keys_at,
    load_rows,
    load_tile,
    multiplier,
    pairs_of,
    row_of,
    scores,
    store_rows,
    tile_words,
)


@triton.jit
def _step(
    top, total, acc, q, k, v, part, terms, reaches, drop, b, h, slot, live, row, i, low, high,
    start, words, scale, each, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr,
    PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KINDS: tl.constexpr, P: tl.constexpr,
    TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr,
    INNER: tl.constexpr, CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys. Of an inner one every pair exists."""
    key_slot = start + tl.arange(0, BN)
    key, present = keys_at(part, b, key_slot, KINDS, P)
    keys = load_tile(k, b, h // each, start, key, present, D, PD, BN, KINDS[P][0], not INNER)
    s = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
    exists = tl.full([BM, BN], True, tl.int1)
    if not INNER:
        exists = pairs_of(
            part, reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words,
            KINDS, P, REACHES,
        )  # fmt: skip
    s, exists = scores(s, exists, terms, scale, b, h, row, live, i, key, KINDS[P][4], TERMS)
    s = tl.where(exists, s, float("-inf"))
    new = tl.maximum(top, tl.max(s, 1))
    shift = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(s - shift[:, None])
    old = tl.exp2(top - shift)
    total = total * old + tl.sum(p, 1)
    if DROPOUT or FACTORS:
        p *= multiplier(terms, drop, b, h, row, live, i, key, KINDS[P][4], TERMS, DROPOUT, BM, BN)
    values = load_tile(v, b, h // each, start, key, present, DV, PDV, BN, KINDS[P][0], not INNER)
    acc = acc * old[:, None]
    if CAREFUL:
        acc = careful_dot(p, exists, values, acc, BN)
    else:
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision=PRECISION)
    return new, total, acc


@triton.jit
def _all_keys(
    q, k, v, parts, terms, reaches, drop, tile, b, h, place, slot, live, row, i, scale, each,
    D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr,
    DROPOUT: tl.constexpr, FACTORS: tl.constexpr, PLAIN: tl.constexpr, CAREFUL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The rows' largest score, sum and weighted values, and which rows have an interval at all."""
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, PDV], tl.float32)
    some = tl.zeros([BM], tl.int1)
    for p in tl.static_range(len(KINDS)):
        low, high = interval(parts[p], reaches, b, h, place, slot, live, row, i, KINDS, p, REACHES)
        some = some | (low < high)
        words = tl.zeros([BM], tl.int64)
        if KINDS[p][3]:
            own = tile * BM // 64
            for entry in range(tl.load(parts[p].start + own), tl.load(parts[p].start + own + 1)):
                words = tile_words(parts[p], b, place, slot, entry, KINDS, p)
                column = tl.load(parts[p].columns + entry) * 64
                for start in range(column, column + 64, BN):
                    top, total, acc = _step(
                        top, total, acc, q, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, start, words, scale, each, D, DV, PD, PDV, BM, BN,
                        KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, False, CAREFUL, PRECISION,
                    )  # fmt: skip
        else:
            first, inner_first, inner_last, last = key_range(low, high, BN, PLAIN[p])
            for start in range(first, inner_first, BN):
                top, total, acc = _step(
                    top, total, acc, q, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                    row, i, low, high, start, words, scale, each, D, DV, PD, PDV, BM, BN, KINDS, p,
                    TERMS, REACHES, DROPOUT, FACTORS, False, CAREFUL, PRECISION,
                )  # fmt: skip
            if PLAIN[p]:
                for start in range(inner_first, inner_last, BN):
                    top, total, acc = _step(
                        top, total, acc, q, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, start, words, scale, each, D, DV, PD, PDV, BM, BN,
                        KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, True, CAREFUL, PRECISION,
                    )  # fmt: skip
                for start in range(inner_last, last, BN):
                    top, total, acc = _step(
                        top, total, acc, q, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, start, words, scale, each, D, DV, PD, PDV, BM, BN,
                        KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, False, CAREFUL, PRECISION,
                    )  # fmt: skip
    return top, total, acc, some


@triton.jit
def _attend(
    tile, unit, q, k, v, out, limits, broken, rows, parts, terms, reaches, drop, shift, places,
    scale, each, tiles, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, PLAIN: tl.constexpr, FIRST: tl.constexpr, MERGED: tl.constexpr,
    CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of rows, for one sample and head (a unit)."""
    b = unit // places
    place = unit % places
    h = head_of(rows, place, LISTED)
    slot = tile * BM + tl.arange(0, BM)
    live = slot < rows.length
    row = row_of(rows, b, slot, live, INDEXED)
    i = row + shift
    query = load_tile(q, b, h, tile * BM, row, live, D, PD, BM, INDEXED, True)
    top, total, acc, some = _all_keys(
        query, k, v, parts, terms, reaches, drop, tile, b, h, place, slot, live, row, i, scale,
        each, D, DV, PD, PDV, BM, BN, KINDS, TERMS, REACHES, DROPOUT, FACTORS, PLAIN, CAREFUL,
        PRECISION,
    )  # fmt: skip
    empty = total == 0.0
    y = acc / tl.where(empty, 1.0, total)[:, None]
    limit = tl.where(empty, float("-inf"), (top + tl.log2(total)) * LN2).to(tl.float64)
    own = live
    if not FIRST:
        own = live & some
    if not CAREFUL:
        # Rows with a NaN are left to `repair`: it may be another row's.
        bad = tl.max((acc != acc).to(tl.int32))
        tl.store(broken + unit * tiles + tile, bad)
        own = own & ((slot * 0 + bad) == 0)
    if MERGED:
        known = tl.load(at_limits(limits, b, h, row), mask=own, other=float("-inf"))
        larger = tl.maximum(known, limit)
        safe = tl.where(larger == float("-inf"), 0.0, larger)
        both = safe + tl.log(tl.exp(known - safe) + tl.exp(limit - safe))
        both = tl.where(larger == float("-inf"), float("-inf"), both)
        base = tl.where(larger == float("-inf"), 0.0, both)
        before = load_rows(out, b, h, row, own, DV, PDV)
        y = y * tl.exp(limit - base).to(tl.float32)[:, None]
        y += before * tl.exp(known - base).to(tl.float32)[:, None]
        limit = both
    store_rows(out, y, b, h, row, own, DV, PDV, False)
    tl.store(at_limits(limits, b, h, row), limit, mask=own)


@triton.jit
def outputs(
    q, k, v, out, limits, broken, rows, parts, terms, reaches, drop, shift, places, scale, each,
    tiles, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, PLAIN: tl.constexpr, FIRST: tl.constexpr, MERGED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Attention of a walk's rows, and their log-sum-exp.

    The FIRST walk writes every row; another only those that have an interval in it, over what is
    there, or MERGED with it.
    """
    _attend(
        tl.program_id(0), tl.program_id(1), q, k, v, out, limits, broken, rows, parts, terms,
        reaches, drop, shift, places, scale, each, tiles, D, DV, PD, PDV, BM, BN, INDEXED, LISTED,
        KINDS, TERMS, REACHES, DROPOUT, FACTORS, PLAIN, FIRST, MERGED, False, PRECISION,
    )  # fmt: skip


@triton.jit
def repair_outputs(
    q, k, v, out, limits, broken, rows, parts, terms, reaches, drop, shift, places, scale, each,
    tiles, units, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, PLAIN: tl.constexpr, FIRST: tl.constexpr, MERGED: tl.constexpr,
    PRECISION: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair. Most often there are none."""
    start = tl.program_id(0) * CHUNK
    if has_broken(broken, start, tiles * units, CHUNK):
        for work in range(start, tl.minimum(start + CHUNK, tiles * units)):
            if tl.load(broken + work) > 0:
                for part_of in range(BM // FINE):
                    _attend(
                        work % tiles * (BM // FINE) + part_of, work // tiles, q, k, v, out, limits,
                        broken, rows, parts, terms, reaches, drop, shift, places, scale, each,
                        tiles, D, DV, PD, PDV, FINE, FINE, INDEXED, LISTED, KINDS, TERMS, REACHES,
                        DROPOUT, FACTORS, PLAIN, FIRST, MERGED, True, PRECISION,
                    )  # fmt: skip


@triton.jit
def has_broken(broken, start, count, CHUNK: tl.constexpr):
    """Whether one of the tiles from `start` on has to be repaired."""
    place = start + tl.arange(0, CHUNK)
    return tl.max(tl.load(broken + place, mask=place < count, other=0), 0) > 0


@triton.jit
def at_limits(limits, b, h, row):
    return limits.data + b.to(tl.int64) * limits.batch + h.to(tl.int64) * limits.head + row
