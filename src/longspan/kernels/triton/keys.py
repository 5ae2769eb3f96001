"""The gradients of keys and values: one program for a tile of keys of one sample and key head.

The pairs of a key come from several sources: a source is a walk and one of its parts. Sources that
share an order of keys share a launch. One order has every key, the base: its kernel writes dk and
dv, and adds at its end what the others have summed for its keys. Those are most often few keys and
many rows: a program has one chunk of the rows.

KINDS is for every source here, and WALKS too: (rows have an index, the walk lists heads, rows of a
tile, tile bounds that are read at once).
"""

from __future__ import annotations

import triton
import triton.language as tl

from .outputs import at_limits, has_broken, load_limits
from .pairs import (
    BELL_SCORE,
    at_turn,
    bell_log,
    careful_dot,
    dot_added,
    head_of,
    interval,
    keys_at,
    load_rows,
    load_tile,
    multiplier,
    pairs_of,
    row_of,
    scores,
    store_rows,
    tile_words,
    turns_of,
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
    dk, dv, keys, values, key, present, key_slot, start, given, grad, limits, means, source, b, h,
    place, tile, entry, S: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """One tile of query rows."""
    KINDS: tl.constexpr = MADE.KINDS
    TERMS: tl.constexpr = MADE.TERMS
    REACHES: tl.constexpr = MADE.REACHES
    INDEXED: tl.constexpr = MADE.WALKS[S][0]
    BM: tl.constexpr = MADE.WALKS[S][2]
    part = source.part
    slot = tile * BM + tl.arange(0, BM)
    live = slot < source.rows.length
    row = row_of(source.rows, b, slot, live, INDEXED)
    i = row + given.shift
    low, high = interval(part, given.reaches, b, h, place, slot, live, row, i, KINDS, S, REACHES)
    words = tl.zeros([BM], tl.int64)
    if KINDS[S][3]:
        words = tile_words(part, b, place, slot, entry, KINDS, S)
    query = load_tile(given.q, b, h, tile * BM, row, live, MADE.D, MADE.PD, BM, INDEXED, True)
    gradient = load_tile(grad, b, h, tile * BM, row, live, MADE.DV, MADE.PDV, BM, INDEXED, True)
    limit = load_limits(limits, b, h, row, live)
    mean = tl.load(at_limits(means, b, h, row), mask=live, other=0.0)
    s = tl.dot(query, tl.trans(keys), input_precision=MADE.PRECISION)
    da = tl.dot(gradient, tl.trans(values), input_precision=MADE.PRECISION)
    exists = pairs_of(
        part, given.reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words,
        KINDS, S, REACHES,
    )  # fmt: skip
    s, exists = scores(
        s, exists, given.terms, given.scale, b, h, row, live, i, key, KINDS[S][4], TERMS
    )
    factor = tl.full([BM, MADE.BN], 1.0, tl.float32)
    if MADE.DROPOUT or MADE.FACTORS:
        factor = multiplier(
            given.terms, given.drop, b, h, row, live, i, key, start, KINDS[S][0],
            KINDS[S][4], TERMS, MADE.DROPOUT, BM, MADE.BN,
        )  # fmt: skip
    p, ds = score_gradient(
        s, limit, exists, da, factor, mean, MADE.DROPOUT or MADE.FACTORS, MADE.CAREFUL, query.dtype
    )
    a = p * factor
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS)):
        if (KINDS[S][4] >> TERMS[t][1]) & 1:
            if TERMS[t][0] == BELL_SCORE:
                variance = variance_of(given.terms[t], b, h, row, live)
                bell = tl.exp(bell_log(distance, variance, TERMS[t][2]))
                ds = tl.where(ds == 0.0, 0.0, ds * bell)
    if MADE.CAREFUL:
        dv = careful_dot(tl.trans(a), tl.trans(exists), gradient, dv, BM)
        dk = careful_dot(tl.trans(ds), tl.trans(exists), query, dk, BM)
    else:
        dv = dot_added(tl.trans(a.to(gradient.dtype)), gradient, dv, BM, MADE)
        dk = dot_added(tl.trans(ds.to(query.dtype)), query, dk, BM, MADE)
    return dk, dv


@triton.jit
def _all_rows(
    dk, dv, keys, values, key_slot, given, grad, limits, means, source, b, key_head, start, chunk,
    S: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """What the rows of one source, or of a chunk of it, add."""
    KINDS: tl.constexpr = MADE.KINDS
    LISTED: tl.constexpr = MADE.WALKS[S][1]
    BM: tl.constexpr = MADE.WALKS[S][2]
    SCAN: tl.constexpr = MADE.WALKS[S][3]
    key, _, present = keys_at(source.part, b, key_slot, KINDS, S)
    first_place = key_head * given.each
    end_place = first_place + given.each
    if LISTED:
        first_place = first_place * 0
        end_place = first_place + source.places
    for place in range(first_place, end_place):
        h = head_of(source.rows, place + b * 0, LISTED)
        if h // given.each == key_head:
            if KINDS[S][3]:
                first_turn, end_turn = turns_of(source.part.column_start, start // 64, BM)
                for turn in range(first_turn, end_turn):
                    place_of_entry, tile = at_turn(source.part.column_rows, turn, BM)
                    entry = tl.load(source.part.column_entry + place_of_entry)
                    dk, dv = _step(
                        dk, dv, keys, values, key, present, key_slot, start, given, grad, limits,
                        means, source, b, h, place, tile, entry, S, MADE,
                    )  # fmt: skip
            else:
                tiles = source.tiles
                first_tile = tiles
                last_tile = -1
                base = (b * source.places + place) * tiles
                for scan in range(0, tiles, SCAN):
                    tile = scan + tl.arange(0, SCAN)
                    low = tl.load(source.low + base + tile, mask=tile < tiles, other=2147483647)
                    high = tl.load(source.high + base + tile, mask=tile < tiles, other=0)
                    hit = (low < start + MADE.BN) & (high > start)
                    first_tile = tl.minimum(first_tile, tl.min(tl.where(hit, tile, tiles), 0))
                    last_tile = tl.maximum(last_tile, tl.max(tl.where(hit, tile, -1), 0))
                end_tile = last_tile + 1
                if MADE.CHUNKS > 1:
                    share = tl.cdiv(tiles, MADE.CHUNKS)
                    first_tile = tl.maximum(first_tile, chunk * share)
                    end_tile = tl.minimum(end_tile, chunk * share + share)
                for tile in range(first_tile, end_tile):
                    dk, dv = _step(
                        dk, dv, keys, values, key, present, key_slot, start, given, grad, limits,
                        means, source, b, h, place, tile, 0, S, MADE,
                    )  # fmt: skip
    return dk, dv


@triton.jit
def _differentiate(
    key_tile, unit, given, grad, limits, means, dk, dv, broken, order, sources, others, key_heads,
    key_tiles, MADE: tl.constexpr,
):  # fmt: skip
    """One tile of keys and one chunk of their rows; a sample and key head has CHUNKS units."""
    BN: tl.constexpr = MADE.BN
    D: tl.constexpr = MADE.D
    DV: tl.constexpr = MADE.DV
    PD: tl.constexpr = MADE.PD
    PDV: tl.constexpr = MADE.PDV
    start = key_tile * BN
    b = unit // MADE.CHUNKS // key_heads
    key_head = unit // MADE.CHUNKS % key_heads
    key_slot = start + tl.arange(0, BN)
    own = key_slot < order.length
    key = tl.where(own, key_slot, 0)
    if MADE.KEYS_INDEXED:
        key = tl.load(order.keys + b * order.batch + key_slot, mask=own, other=0)
    keys = load_tile(given.k, b, key_head, start, key, own, D, PD, BN, MADE.KEYS_INDEXED, True)
    values = load_tile(given.v, b, key_head, start, key, own, DV, PDV, BN, MADE.KEYS_INDEXED, True)
    to_k = tl.zeros([BN, PD], tl.float32)
    to_v = tl.zeros([BN, PDV], tl.float32)
    for s in tl.static_range(len(MADE.KINDS)):
        to_k, to_v = _all_rows(
            to_k, to_v, keys, values, key_slot, given, grad, limits, means, sources[s], b,
            key_head, start, unit % MADE.CHUNKS, s, MADE,
        )  # fmt: skip
    to_k *= given.scale
    for o in tl.static_range(len(others)):
        other = others[o]
        slot = tl.load(other.slots + b * other.slots_batch + key, mask=own, other=-1)
        if tl.max(slot, 0) >= 0:
            for chunk in range(0, other.chunks):
                unit_of = key_head * other.chunks + chunk
                to_k += load_rows(other.dk, b, unit_of, slot, slot >= 0, D, PD)
                to_v += load_rows(other.dv, b, unit_of, slot, slot >= 0, DV, PDV)
    if not MADE.CAREFUL:
        bad = tl.maximum(tl.max((to_k != to_k).to(tl.int32)), tl.max((to_v != to_v).to(tl.int32)))
        tl.store(broken + unit * key_tiles + key_tile, bad)
        own = own & ((key_slot * 0 + bad) == 0)
    if MADE.PARTIAL:
        unit_of = unit % (key_heads * MADE.CHUNKS)
        store_rows(dk, to_k, b, unit_of, key_slot, own, D, PD, False)
        store_rows(dv, to_v, b, unit_of, key_slot, own, DV, PDV, False)
    else:
        store_rows(dk, to_k, b, key_head, key, own, D, PD, False)
        store_rows(dv, to_v, b, key_head, key, own, DV, PDV, False)


@triton.jit
def key_gradients(
    given, grad, limits, means, dk, dv, broken, order, sources, others, key_heads, key_tiles,
    MADE: tl.constexpr,
):  # fmt: skip
    """dk and dv of the keys of one order; or, PARTIAL, what chunks of rows add to them, by slots of
    the order.
    """
    _differentiate(
        tl.program_id(0), tl.program_id(1), given, grad, limits, means, dk, dv, broken, order,
        sources, others, key_heads, key_tiles, MADE,
    )  # fmt: skip


@triton.jit
def repair_key_gradients(
    given, grad, limits, means, dk, dv, broken, order, sources, others, key_heads, key_tiles,
    units, MADE: tl.constexpr, PIECES: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair."""
    start = tl.program_id(0) * SPAN
    if has_broken(broken, start, key_tiles * units, SPAN):
        for work in range(start, tl.minimum(start + SPAN, key_tiles * units)):
            if tl.load(broken + work) > 0:
                for piece in range(PIECES):
                    _differentiate(
                        work % key_tiles * PIECES + piece, work // key_tiles, given, grad, limits,
                        means, dk, dv, broken, order, sources, others, key_heads, key_tiles, MADE,
                    )  # fmt: skip


@triton.jit
def join_key_gradients(
    order, other, allowed, allowed_batch, dk, dv, key_heads, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Adds up the chunks of an order's keys, and writes those keys that are struck out elsewhere:
    the others only fill the places of a sample that has fewer.
    """
    unit = tl.program_id(1)
    b = unit // key_heads
    key_head = unit % key_heads
    slot = tl.program_id(0) * BN + tl.arange(0, BN)
    live = slot < order.length
    key = tl.load(order.keys + b * order.batch + slot, mask=live, other=0)
    own = live & (tl.load(allowed + b * allowed_batch + key, mask=live, other=1) == 0)
    to_k = tl.zeros([BN, PD], tl.float32)
    to_v = tl.zeros([BN, PDV], tl.float32)
    for chunk in range(0, other.chunks):
        unit_of = key_head * other.chunks + chunk
        to_k += load_rows(other.dk, b, unit_of, slot, live, D, PD)
        to_v += load_rows(other.dv, b, unit_of, slot, live, DV, PDV)
    store_rows(dk, to_k, b, key_head, key, own, D, PD, False)
    store_rows(dv, to_v, b, key_head, key, own, DV, PDV, False)
