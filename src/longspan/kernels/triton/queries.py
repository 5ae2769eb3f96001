"""The gradients of queries, and of what weights hold for every row."""

from __future__ import annotations

import triton
import triton.language as tl

from .outputs import at_limits, has_broken
from .pairs import (
    ALIBI,
    BELL_BIAS,
    BELL_SCORE,
    BELL_WEIGHT,
    BIAS,
    FINE,
    LOG2E,
    RAMP,
    bell_log,
    careful_dot,
    head_of,
    interval,
    key_range,
    keys_at,
    load_tile,
    multiplier,
    pairs_of,
    ramp_of,
    row_of,
    scores,
    span_of,
    store_rows,
    tile_words,
    variance_of,
    weighed,
)


@triton.jit
def score_gradient(s, limit, exists, da, factor, mean, FACTORS: tl.constexpr):
    """Probabilities, and the gradient of the scores after all weights; `s` and `limit` are times
    log2(e).
    """
    p = tl.where(exists, tl.exp2(s - limit[:, None]), 0.0)
    dp = da
    if FACTORS:
        dp = da * factor
    return p, tl.where(exists, p * (dp - mean[:, None]), 0.0)


@triton.jit
def _step(
    acc, sums, q, grad, k, v, part, terms, reaches, drop, b, h, slot, live, row, i, low, high,
    limit, mean, start, words, scale, each, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr,
    PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KINDS: tl.constexpr, P: tl.constexpr,
    TERMS: tl.constexpr, REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr,
    INNER: tl.constexpr, MEAN: tl.constexpr, CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys: what it adds to dq and to the sums; or, for the MEAN gradient of rows, the
    sums that it is made of.
    """
    key_slot = start + tl.arange(0, BN)
    key, present = keys_at(part, b, key_slot, KINDS, P)
    keys = load_tile(k, b, h // each, start, key, present, D, PD, BN, KINDS[P][0], not INNER)
    product = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
    values = load_tile(v, b, h // each, start, key, present, DV, PDV, BN, KINDS[P][0], not INNER)
    da = tl.dot(grad, tl.trans(values), input_precision=PRECISION)
    exists = tl.full([BM, BN], True, tl.int1)
    if not INNER:
        exists = pairs_of(
            part, reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words,
            KINDS, P, REACHES,
        )  # fmt: skip
    s, exists = scores(product, exists, terms, scale, b, h, row, live, i, key, KINDS[P][4], TERMS)
    factor = tl.full([BM, BN], 1.0, tl.float32)
    if DROPOUT or FACTORS:
        factor = multiplier(
            terms, drop, b, h, row, live, i, key, KINDS[P][4], TERMS, DROPOUT, BM, BN
        )
    p, ds = score_gradient(s, limit, exists, da, factor, mean, DROPOUT or FACTORS)
    if MEAN:
        return acc, added(added(sums, tl.sum(ds, 1), 0), tl.sum(p, 1), 1)
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS) - 1, -1, -1):
        if (KINDS[P][4] >> TERMS[t][1]) & 1:
            term = terms[t]
            if TERMS[t][0] <= BELL_WEIGHT:
                variance = variance_of(term, b, h, row, live)
                squares = distance * distance
                if TERMS[t][2]:
                    squares -= variance[:, None]
                if TERMS[t][0] == BELL_BIAS:
                    if TERMS[t][3] >= 0:
                        sums = added(sums, tl.sum(ds * squares, 1), TERMS[t][3])
                elif TERMS[t][0] == BELL_SCORE:
                    if TERMS[t][3] >= 0:
                        after, _ = weighed(
                            product * scale, exists, terms, b, h, row, live, i, key, KINDS[P][4],
                            TERMS, t + 1,
                        )  # fmt: skip
                        own = tl.where(ds == 0.0, 0.0, ds * after * squares)
                        sums = added(sums, tl.sum(own, 1), TERMS[t][3])
                    bell = tl.exp(bell_log(distance, variance, TERMS[t][2]))
                    ds = tl.where(ds == 0.0, 0.0, ds * bell)
                else:
                    if TERMS[t][3] >= 0:
                        own = tl.where(p == 0.0, 0.0, p * factor * da * squares)
                        sums = added(sums, tl.sum(own, 1), TERMS[t][3])
            elif TERMS[t][0] == RAMP:
                if TERMS[t][3] >= 0:
                    span = span_of(term, b, h, row, live)
                    m = ramp_of(term, distance, span)
                    own = tl.where((m < 1.0) & (ds != 0.0), ds / m, 0.0)
                    sums = added(sums, tl.sum(own, 1), TERMS[t][3])
            elif TERMS[t][0] == ALIBI:
                if TERMS[t][3] >= 0:
                    sums = added(sums, tl.sum(ds * tl.abs(distance), 1), TERMS[t][3])
            elif TERMS[t][0] == BIAS:
                if TERMS[t][3] >= 0:
                    sums = added(sums, tl.sum(ds, 1), TERMS[t][3])
    if CAREFUL:
        acc = careful_dot(ds, exists, keys, acc, BN)
    else:
        acc = tl.dot(ds.to(keys.dtype), keys, acc, input_precision=PRECISION)
    return acc, sums


@triton.jit
def added(sums, more, PLACE: tl.constexpr):
    """A tuple of sums with one of them increased."""
    found = ()
    for s in tl.static_range(len(sums)):
        if s == PLACE:
            found = found + (sums[s] + more,)
        else:
            found = found + (sums[s],)
    return found


@triton.jit
def _all_keys(
    q, grad, k, v, parts, terms, reaches, drop, tile, b, h, place, slot, live, row, i, limit, mean,
    scale, each, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr, PDV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr,
    REACHES: tl.constexpr, DROPOUT: tl.constexpr, FACTORS: tl.constexpr, PLAIN: tl.constexpr,
    SUMS: tl.constexpr, MEAN: tl.constexpr, CAREFUL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    acc = tl.zeros([BM, PD], tl.float32)
    some = tl.zeros([BM], tl.int1)
    sums = ()
    for _ in tl.static_range(SUMS):
        sums = sums + (tl.zeros([BM], tl.float32),)
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
                    acc, sums = _step(
                        acc, sums, q, grad, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, limit, mean, start, words, scale, each, D, DV, PD, PDV,
                        BM, BN, KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, False, MEAN, CAREFUL,
                        PRECISION,
                    )  # fmt: skip
        else:
            first, inner_first, inner_last, last = key_range(low, high, BN, PLAIN[p])
            for start in range(first, inner_first, BN):
                acc, sums = _step(
                    acc, sums, q, grad, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                    row, i, low, high, limit, mean, start, words, scale, each, D, DV, PD, PDV, BM,
                    BN, KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, False, MEAN, CAREFUL,
                    PRECISION,
                )  # fmt: skip
            if PLAIN[p]:
                for start in range(inner_first, inner_last, BN):
                    acc, sums = _step(
                        acc, sums, q, grad, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, limit, mean, start, words, scale, each, D, DV, PD, PDV,
                        BM, BN, KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, True, MEAN, CAREFUL,
                        PRECISION,
                    )  # fmt: skip
                for start in range(inner_last, last, BN):
                    acc, sums = _step(
                        acc, sums, q, grad, k, v, parts[p], terms, reaches, drop, b, h, slot, live,
                        row, i, low, high, limit, mean, start, words, scale, each, D, DV, PD, PDV,
                        BM, BN, KINDS, p, TERMS, REACHES, DROPOUT, FACTORS, False, MEAN, CAREFUL,
                        PRECISION,
                    )  # fmt: skip
    return acc, sums, some


@triton.jit
def _differentiate(
    tile, unit, q, k, v, out, grad, limits, means, dq, value_gradients, broken, rows, parts, terms,
    reaches, drop, shift, places, scale, each, tiles, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr,
    LISTED: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr,
    DROPOUT: tl.constexpr, FACTORS: tl.constexpr, PLAIN: tl.constexpr, SUMS: tl.constexpr,
    FIRST: tl.constexpr, MERGED: tl.constexpr, EXACT: tl.constexpr, CAREFUL: tl.constexpr,
    PRECISION: tl.constexpr,
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
    gradient = load_tile(grad, b, h, tile * BM, row, live, DV, PDV, BM, INDEXED, True)
    limit = tl.load(at_limits(limits, b, h, row), mask=live, other=float("-inf")).to(tl.float32)
    # A row without pairs: nothing of it exists.
    limit = tl.where(limit == float("-inf"), float("inf"), limit * LOG2E)
    if EXACT:
        none = tl.zeros([BM], tl.float32)
        _, sums, _ = _all_keys(
            query, gradient, k, v, parts, terms, reaches, drop, tile, b, h, place, slot, live, row,
            i, limit, none, scale, each, D, DV, PD, PDV, BM, BN, KINDS, TERMS, REACHES, DROPOUT,
            FACTORS, PLAIN, 2, True, False, PRECISION,
        )  # fmt: skip
        mean = tl.where(sums[1] == 0.0, 0.0, sums[0] / sums[1])
    else:
        y = load_tile(out, b, h, tile * BM, row, live, DV, PDV, BM, INDEXED, True)
        mean = tl.sum(y.to(tl.float32) * gradient.to(tl.float32), 1)
    acc, sums, some = _all_keys(
        query, gradient, k, v, parts, terms, reaches, drop, tile, b, h, place, slot, live, row, i,
        limit, mean, scale, each, D, DV, PD, PDV, BM, BN, KINDS, TERMS, REACHES, DROPOUT, FACTORS,
        PLAIN, SUMS, False, CAREFUL, PRECISION,
    )  # fmt: skip
    own = live
    if not FIRST:
        own = live & some
    tl.store(at_limits(means, b, h, row), mean, mask=own)
    if not CAREFUL:
        bad = tl.max((acc != acc).to(tl.int32))
        tl.store(broken + unit * tiles + tile, bad)
        own = own & ((slot * 0 + bad) == 0)
    store_rows(dq, acc * scale, b, h, row, own, D, PD, MERGED)
    for t in tl.static_range(len(TERMS)):
        if TERMS[t][3] >= 0:
            found = sums[TERMS[t][3]]
            if TERMS[t][0] <= BELL_WEIGHT:
                variance = variance_of(terms[t], b, h, row, live)
                found = found / (2.0 * variance * variance)
            elif TERMS[t][0] == RAMP:
                found = found * (1.0 / terms[t].softness)
            elif TERMS[t][0] == ALIBI:
                found = -found
            to = at_limits(value_gradients[TERMS[t][3]], b, h, row)
            if MERGED:
                found += tl.load(to, mask=own, other=0.0)
            tl.store(to, found, mask=own)


@triton.jit
def query_gradients(
    q, k, v, out, grad, limits, means, dq, value_gradients, broken, rows, parts, terms, reaches,
    drop, shift, places, scale, each, tiles, D: tl.constexpr, DV: tl.constexpr, PD: tl.constexpr,
    PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr,
    LISTED: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr,
    DROPOUT: tl.constexpr, FACTORS: tl.constexpr, PLAIN: tl.constexpr, SUMS: tl.constexpr,
    FIRST: tl.constexpr, MERGED: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of a walk's rows, their mean gradient (which the keys' kernel reads after), and the
    gradients of a bell's variance, a ramp's span and (row by row) a slope and a bias that has one
    number for all keys of a row.

    The mean is that of the output's product with its gradient, which costs nothing; or, EXACT, that
    of the pairs, so that a row with one pair has a gradient of 0 and not of a rounding error.
    """
    _differentiate(
        tl.program_id(0), tl.program_id(1), q, k, v, out, grad, limits, means, dq, value_gradients,
        broken, rows, parts, terms, reaches, drop, shift, places, scale, each, tiles, D, DV, PD,
        PDV, BM, BN, INDEXED, LISTED, KINDS, TERMS, REACHES, DROPOUT, FACTORS, PLAIN, SUMS, FIRST,
        MERGED, EXACT, False, PRECISION,
    )  # fmt: skip


@triton.jit
def repair_query_gradients(
    q, k, v, out, grad, limits, means, dq, value_gradients, broken, rows, parts, terms, reaches,
    drop, shift, places, scale, each, tiles, units, D: tl.constexpr, DV: tl.constexpr,
    PD: tl.constexpr, PDV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, INDEXED: tl.constexpr,
    LISTED: tl.constexpr, KINDS: tl.constexpr, TERMS: tl.constexpr, REACHES: tl.constexpr,
    DROPOUT: tl.constexpr, FACTORS: tl.constexpr, PLAIN: tl.constexpr, SUMS: tl.constexpr,
    FIRST: tl.constexpr, MERGED: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair."""
    start = tl.program_id(0) * CHUNK
    if has_broken(broken, start, tiles * units, CHUNK):
        for work in range(start, tl.minimum(start + CHUNK, tiles * units)):
            if tl.load(broken + work) > 0:
                for part_of in range(BM // FINE):
                    _differentiate(
                        work % tiles * (BM // FINE) + part_of, work // tiles, q, k, v, out, grad,
                        limits, means, dq, value_gradients, broken, rows, parts, terms, reaches,
                        drop, shift, places, scale, each, tiles, D, DV, PD, PDV, FINE, FINE,
                        INDEXED, LISTED, KINDS, TERMS, REACHES, DROPOUT, FACTORS, PLAIN, SUMS,
                        FIRST, MERGED, EXACT, True, PRECISION,
                    )  # fmt: skip
