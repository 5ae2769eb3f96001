"""The gradients of keys and values: one program for a tile of keys of one sample and key head."""

from __future__ import annotations

import triton
import triton.language as tl

from .outputs import at_limits, has_broken
from .pairs import (
    BELL_SCORE,
    FINE,
    LOG2E,
    bell_log,
    careful_dot,
    head_of,
    interval,
    keys_at,
    load_tile,
    multiplier,
    pairs_of,
    row_of,
    scores,
    store_rows,
    tile_words,
    variance_of,
)
from .queries import score_gradient


@triton.jit
def extents(
    rows, part, reaches, low, high, shift, places, BM: tl.constexpr, INDEXED: tl.constexpr,
    LISTED: tl.constexpr, KINDS: tl.constexpr, REACHES: tl.constexpr,
):  # fmt: skip
    """For every tile of query rows the first key that one of them meets, and one past the last."""
    tile = tl.program_id(0)
    b = tl.program_id(1) // places
    place = tl.program_id(1) % places
    h = head_of(rows, place, LISTED)
    slot = tile * BM + tl.arange(0, BM)
    live = slot < rows.length
    row = row_of(rows, b, slot, live, INDEXED)
    i = row + shift
    first, last = interval(part, reaches, b, h, place, slot, live, row, i, KINDS, 0, REACHES)
    to = tl.program_id(1) * tl.num_programs(0) + tile
    tl.store(low + to, tl.min(tl.where(first < last, first, 2147483647), 0))
    tl.store(high + to, tl.max(last, 0))


@triton.jit
def _step(
    dk, dv, keys, values, key, present, key_slot, q, grad, limits, means, part, rows, terms,
    reaches, drop, b, h, place, tile, entry, shift, scale, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of query rows."""
    slot = tile * BM + tl.arange(0, BM)
    live = slot < rows.length
    row = row_of(rows, b, slot, live, INDEXED)
    i = row + shift
    low, high = interval(part, reaches, b, h, place, slot, live, row, i, KINDS, 0, REACHES)
    words = tl.zeros([BM], tl.int64)
    if KINDS[0][3]:
        words = tile_words(part, b, place, slot, entry, KINDS, 0)
    query = load_tile(q, b, h, tile * BM, row, live, D, PD, BM, INDEXED, True)
    gradient = load_tile(grad, b, h, tile * BM, row, live, DV, PDV, BM, INDEXED, True)
    limit = tl.load(at_limits(limits, b, h, row), mask=live, other=float("-inf")).to(tl.float32)
    limit = tl.where(limit == float("-inf"), float("inf"), limit * LOG2E)
    mean = tl.load(at_limits(means, b, h, row), mask=live, other=0.0)
    s = tl.dot(query, tl.trans(keys), input_precision=PRECISION)
    da = tl.dot(gradient, tl.trans(values), input_precision=PRECISION)
    exists = pairs_of(
        part, reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words, KINDS,
        0, REACHES,
    )  # fmt: skip
    s, exists = scores(s, exists, terms, scale, b, h, row, live, i, key, KINDS[0][4], TERMS)
    factor = tl.full([BM, BN], 1.0, tl.float32)
    if DROPOUT or FACTORS:
        factor = multiplier(
            terms, drop, b, h, row, live, i, key, KINDS[0][4], TERMS, DROPOUT, BM, BN
        )
    p, ds = score_gradient(s, limit, exists, da, factor, mean, DROPOUT or FACTORS)
    a = p * factor
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS)):
        if (KINDS[0][4] >> TERMS[t][1]) & 1:
            if TERMS[t][0] == BELL_SCORE:
                variance = variance_of(terms[t], b, h, row, live)
                bell = tl.exp(bell_log(distance, variance, TERMS[t][2]))
                ds = tl.where(ds == 0.0, 0.0, ds * bell)
    if CAREFUL:
        dv = careful_dot(tl.trans(a), tl.trans(exists), gradient, dv, BM)
        dk = careful_dot(tl.trans(ds), tl.trans(exists), query, dk, BM)
    else:
        dv = tl.dot(tl.trans(a.to(gradient.dtype)), gradient, dv, input_precision=PRECISION)
        dk = tl.dot(tl.trans(ds.to(query.dtype)), query, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def _all_rows(
    keys, values, key, present, key_slot, q, grad, limits, means, tile_low, tile_high, part, rows,
    terms, reaches, drop, b, key_head, start, shift, places, scale, each, tiles, low_batch,
    low_head, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, SCAN: tl.constexpr, CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    dk = tl.zeros([BN, PD], tl.float32)
    dv = tl.zeros([BN, PDV], tl.float32)
    for place in range(0, places):
        h = head_of(rows, place, LISTED)
        if h // each == key_head:
            if KINDS[0][3]:
                column = start // 64
                first = tl.load(part.column_start + column)
                for e in range(first, tl.load(part.column_start + column + 1)):
                    own = tl.load(part.column_rows + e) * (64 // BM)
                    entry = tl.load(part.column_entry + e)
                    for tile in range(own, own + 64 // BM):
                        dk, dv = _step(
                            dk, dv, keys, values, key, present, key_slot, q, grad, limits, means,
                            part, rows, terms, reaches, drop, b, h, place, tile, entry, shift,
                            scale, D, DV, PD, PDV, BM, BN, INDEXED, KINDS, TERMS, REACHES, DROPOUT,
                            FACTORS, CAREFUL, PRECISION,
                        )  # fmt: skip
            else:
                first_tile = tiles
                last_tile = -1
                base = b * low_batch + place * low_head
                for scan in range(0, tiles, SCAN):
                    tile = scan + tl.arange(0, SCAN)
                    low = tl.load(tile_low + base + tile, mask=tile < tiles, other=2147483647)
                    high = tl.load(tile_high + base + tile, mask=tile < tiles, other=0)
                    hit = (low < start + BN) & (high > start)
                    first_tile = tl.minimum(first_tile, tl.min(tl.where(hit, tile, tiles), 0))
                    last_tile = tl.maximum(last_tile, tl.max(tl.where(hit, tile, -1), 0))
                for tile in range(first_tile, last_tile + 1):
                    dk, dv = _step(
                        dk, dv, keys, values, key, present, key_slot, q, grad, limits, means, part,
                        rows, terms, reaches, drop, b, h, place, tile, 0, shift, scale, D, DV, PD,
                        PDV, BM, BN, INDEXED, KINDS, TERMS, REACHES, DROPOUT, FACTORS, CAREFUL,
                        PRECISION,
                    )  # fmt: skip
    return dk, dv


@triton.jit
def _differentiate(
    key_tile, unit, q, k, v, grad, limits, means, dk, dv, tile_low, tile_high, broken, rows, part,
    terms, reaches, drop, shift, places, key_heads, scale, each, tiles, low_batch, low_head,
    key_tiles, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr,
    KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr,
    FACTORS: tl.constexpr, SCAN: tl.constexpr, ADD: tl.constexpr, CAREFUL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys, for one sample and key head (a unit)."""
    start = key_tile * BN
    b = unit // key_heads
    key_head = unit % key_heads
    key_slot = start + tl.arange(0, BN)
    key, present = keys_at(part, b, key_slot, KINDS, 0)
    keys = load_tile(k, b, key_head, start, key, present, D, PD, BN, KINDS[0][0], True)
    values = load_tile(v, b, key_head, start, key, present, DV, PDV, BN, KINDS[0][0], True)
    to_k, to_v = _all_rows(
        keys, values, key, present, key_slot, q, grad, limits, means, tile_low, tile_high, part,
        rows, terms, reaches, drop, b, key_head, start, shift, places, scale, each, tiles,
        low_batch, low_head, D, DV, PD, PDV, BM, BN, INDEXED, LISTED, KINDS, TERMS, REACHES,
        DROPOUT, FACTORS, SCAN, CAREFUL, PRECISION,
    )  # fmt: skip
    own = key_slot < part.length
    if not CAREFUL:
        bad = tl.maximum(tl.max((to_k != to_k).to(tl.int32)), tl.max((to_v != to_v).to(tl.int32)))
        tl.store(broken + unit * key_tiles + key_tile, bad)
        own = own & ((key_slot * 0 + bad) == 0)
    store_rows(dk, to_k * scale, b, key_head, key, own, D, PD, ADD)
    store_rows(dv, to_v, b, key_head, key, own, DV, PDV, ADD)


@triton.jit
def key_gradients(
    q, k, v, grad, limits, means, dk, dv, tile_low, tile_high, broken, rows, part, terms, reaches,
    drop, shift, places, key_heads, scale, each, tiles, low_batch, low_head, key_tiles,
    D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr, KINDS: tl.constexpr,
    TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr,
    SCAN: tl.constexpr, ADD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What one part adds to dk and dv."""
    _differentiate(
        tl.program_id(0), tl.program_id(1), q, k, v, grad, limits, means, dk, dv, tile_low,
        tile_high, broken, rows, part, terms, reaches, drop, shift, places, key_heads, scale, each,
        tiles, low_batch, low_head, key_tiles, D, DV, PD, PDV, BM, BN, INDEXED, LISTED, KINDS,
        TERMS, REACHES, DROPOUT, FACTORS, SCAN, ADD, False, PRECISION,
    )  # fmt: skip


@triton.jit
def repair_key_gradients(
    q, k, v, grad, limits, means, dk, dv, tile_low, tile_high, broken, rows, part, terms, reaches,
    drop, shift, places, key_heads, scale, each, tiles, low_batch, low_head, key_tiles, units,
    D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, INDEXED: tl.constexpr, LISTED: tl.constexpr, KINDS: tl.constexpr,
    TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr,
    SCAN: tl.constexpr, ADD: tl.constexpr, PRECISION: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair."""
    start = tl.program_id(0) * CHUNK
    if has_broken(broken, start, key_tiles * units, CHUNK):
        for work in range(start, tl.minimum(start + CHUNK, key_tiles * units)):
            if tl.load(broken + work) > 0:
                for part_of in range(BN // FINE):
                    _differentiate(
                        work % key_tiles * (BN // FINE) + part_of, work // key_tiles, q, k, v,
                        grad, limits, means, dk, dv, tile_low, tile_high, broken, rows, part,
                        terms, reaches, drop, shift, places, key_heads, scale, each, tiles,
                        low_batch, low_head, key_tiles, D, DV, PD, PDV, BM, FINE, INDEXED, LISTED,
                        KINDS, TERMS, REACHES, DROPOUT, FACTORS, SCAN, ADD, True, PRECISION,
                    )  # fmt: skip
