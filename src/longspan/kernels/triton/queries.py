"""The gradients of queries, and of what weights hold for every row.

As in the forward pass, a walk of few rows has its keys split into chunks, which one more kernel
adds up in order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .outputs import at_limits, has_broken, load_limits, some_interval
from .pairs import (
    ALIBI,
    BELL_BIAS,
    BELL_SCORE,
    BELL_WEIGHT,
    BIAS,
    RAMP,
    at_turn,
    bell_log,
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
    ramp_of,
    scores,
    span_of,
    store_rows,
    tile_words,
    turns_of,
    variance_of,
    weighed,
)

# A probability that is 1 in half precision.
WHOLE = tl.constexpr(1 - 2.0**-13)


@triton.jit
def score_gradient(
    s, limit, exists, da, factor, mean, FACTORS: tl.constexpr, CAREFUL: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Probabilities, and the gradient of the scores after all weights; `s` and `limit` are times
    log2(e), DTYPE is that of the output.

    No probability is above 1, whatever the scores: where float32 has no number between two of them
    and a pair had a last bit more in the forward, it would be infinite.

    A pair that does not exist has a gradient of 0 times what its value gives. That is NaN where the
    value is; who is not CAREFUL finds that in the sums, and has them made again.
    """
    below = tl.minimum(s - limit[:, None], 0.0, propagate_nan=tl.PropagateNan.ALL)
    p = tl.exp2(tl.where(exists, below, float("-inf")))
    dp = da
    if FACTORS:
        dp = da * factor
    share = p
    if DTYPE.primitive_bitwidth < 32:
        # The mean is that of the rounded output, and where one pair has all of a row the rounding
        # would be all that is left. A NaN stays: 0 times NaN is one.
        share = tl.where(p > WHOLE, 0.0, p)
    ds = share * (dp - mean[:, None])
    if CAREFUL:
        ds = tl.where(exists, ds, 0.0)
    return p, ds


@triton.jit
def _step(
    acc, sums, q, grad, given, part, at_rows, low, high, limit, mean, start, words,
    P: tl.constexpr, INNER: tl.constexpr, MEAN: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    """One tile of keys: what it adds to dq and to the sums; or, for the MEAN gradient of rows, the
    sums that it is made of.
    """
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
    product = tl.dot(q, tl.trans(keys), input_precision=MADE.PRECISION)
    values = load_tile(
        given.v, b, head, start, key, inside, MADE.DV, MADE.PDV, BN, KINDS[P][0], not INNER
    )
    da = tl.dot(grad, tl.trans(values), input_precision=MADE.PRECISION)
    exists = tl.full([MADE.BM, BN], True, tl.int1)
    if not INNER:
        exists = pairs_of(
            part, given.reaches, b, h, slot, live, row, i, low, high, key_slot, key, present,
            words, KINDS, P, REACHES,
        )  # fmt: skip
    elif KINDS[P][1]:
        exists = exists & present[None, :]
    s, exists = scores(
        product, exists, given.terms, given.scale, b, h, row, live, i, key, KINDS[P][4], TERMS
    )
    factor = tl.full([MADE.BM, BN], 1.0, tl.float32)
    if MADE.DROPOUT or MADE.FACTORS:
        factor = multiplier(
            given.terms, given.drop, b, h, row, live, i, key, start, KINDS[P][0],
            KINDS[P][4], TERMS, MADE.DROPOUT, MADE.BM, BN,
        )  # fmt: skip
    # The mean gradient of rows is not made again.
    p, ds = score_gradient(
        s, limit, exists, da, factor, mean, MADE.DROPOUT or MADE.FACTORS, MADE.CAREFUL or MEAN,
        q.dtype,
    )  # fmt: skip
    if MEAN:
        return acc, added(added(sums, tl.sum(ds, 1), 0), tl.sum(p, 1), 1)
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS) - 1, -1, -1):
        if (KINDS[P][4] >> TERMS[t][1]) & 1:
            term = given.terms[t]
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
                            product * given.scale, exists, given.terms, b, h, row, live, i, key,
                            KINDS[P][4], TERMS, t + 1,
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
    if MADE.CAREFUL:
        acc = careful_dot(ds, exists, keys, acc, BN)
    else:
        acc = tl.dot(ds.to(keys.dtype), keys, acc, input_precision=MADE.PRECISION)
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
    q, grad, given, parts, at_rows, tile, chunk, limit, mean, SUMS: tl.constexpr,
    MEAN: tl.constexpr, MADE: tl.constexpr,
):  # fmt: skip
    BM: tl.constexpr = MADE.BM
    PD: tl.constexpr = MADE.PD
    acc = tl.zeros([BM, PD], tl.float32)
    sums = ()
    for _ in tl.static_range(SUMS):
        sums = sums + (tl.zeros([BM], tl.float32),)
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
                acc, sums = _step(
                    acc, sums, q, grad, given, part, at_rows, low, high, limit, mean, start,
                    words, p, False, MEAN, MADE,
                )  # fmt: skip
        else:
            words = tl.zeros([BM], tl.int64)
            edges = key_range(low, high, KINDS[p][6], MADE.PLAIN[p])
            for segment in tl.static_range(3 if MADE.PLAIN[p] else 1):
                for start in range(edges[segment], edges[segment + 1], KINDS[p][6]):
                    acc, sums = _step(
                        acc, sums, q, grad, given, part, at_rows, low, high, limit, mean, start,
                        words, p, segment == 1, MEAN, MADE,
                    )  # fmt: skip
    return acc, sums


@triton.jit
def _finish(acc, sums, given, dq, value_gradients, at_rows, own, MADE: tl.constexpr):
    """Writes rows of which every pair is summed."""
    b, h, _, _, live, row, _ = at_rows
    store_rows(dq, acc * given.scale, b, h, row, own, MADE.D, MADE.PD, MADE.MERGED)
    for t in tl.static_range(len(MADE.TERMS)):
        if MADE.TERMS[t][3] >= 0:
            found = sums[MADE.TERMS[t][3]]
            if MADE.TERMS[t][0] <= BELL_WEIGHT:
                variance = variance_of(given.terms[t], b, h, row, live)
                found = found / variance / (2.0 * variance)
            elif MADE.TERMS[t][0] == RAMP:
                found = found * (1.0 / given.terms[t].softness)
            elif MADE.TERMS[t][0] == ALIBI:
                found = -found
            to = at_limits(value_gradients[MADE.TERMS[t][3]], b, h, row)
            if MADE.MERGED:
                found += tl.load(to, mask=own, other=0.0)
            tl.store(to, found, mask=own)


@triton.jit
def _given_rows(given, grad, limits, tile, at_rows, MADE: tl.constexpr):
    """Queries, gradients of outputs, and log-sum-exps (times log2(e)) of some rows."""
    b, h, _, _, live, row, _ = at_rows
    start = tile * MADE.BM
    query = load_tile(given.q, b, h, start, row, live, MADE.D, MADE.PD, MADE.BM, MADE.INDEXED, True)
    gradient = load_tile(
        grad, b, h, start, row, live, MADE.DV, MADE.PDV, MADE.BM, MADE.INDEXED, True
    )
    limit = load_limits(limits, b, h, row, live)
    return query, gradient, limit


@triton.jit
def _differentiate(
    tile, unit, given, out, grad, limits, means, dq, value_gradients, side, broken, rows, parts,
    places, tiles, MADE: tl.constexpr,
):  # fmt: skip
    """One tile of rows and one chunk of their keys; a sample and head has CHUNKS units."""
    SUMS: tl.constexpr = MADE.SUMS
    CHUNKS: tl.constexpr = MADE.CHUNKS
    BM: tl.constexpr = MADE.BM
    chunk = unit % CHUNKS
    at_rows = place_of(rows, tile, unit // CHUNKS, given.shift, places, MADE)
    b, h, _, slot, live, row, _ = at_rows
    query, gradient, limit = _given_rows(given, grad, limits, tile, at_rows, MADE)
    if MADE.EXACT:
        over = tl.zeros([BM], tl.float32)
        under = tl.zeros([BM], tl.float32)
        if CHUNKS == 1:
            _, sums = _all_keys(
                query, gradient, given, parts, at_rows, tile, chunk, limit, over, 2, True, MADE
            )
            over, under = sums
        else:
            for other in tl.static_range(CHUNKS):
                from_unit = unit - chunk + other
                to = at_limits(side.over, unit * 0, from_unit, slot)
                over += tl.load(to, mask=live, other=0.0)
                to = at_limits(side.under, unit * 0, from_unit, slot)
                under += tl.load(to, mask=live, other=0.0)
        mean = tl.where(under == 0.0, 0.0, over / under)
    else:
        y = load_tile(out, b, h, tile * BM, row, live, MADE.DV, MADE.PDV, BM, MADE.INDEXED, True)
        mean = tl.sum(y.to(tl.float32) * gradient.to(tl.float32), 1)
    acc, sums = _all_keys(
        query, gradient, given, parts, at_rows, tile, chunk, limit, mean, SUMS, False, MADE
    )
    own = live
    if not MADE.FIRST:
        own = live & some_interval(given, parts, at_rows, MADE)
    tl.store(at_limits(means, b, h, row), mean, mask=own & ((slot * 0 + chunk) == 0))
    if CHUNKS > 1:
        own = live
    if not MADE.CAREFUL:
        bad = tl.max((acc != acc).to(tl.int32))
        tl.store(broken + unit * tiles + tile, bad)
        own = own & ((slot * 0 + bad) == 0)
    if CHUNKS == 1:
        _finish(acc, sums, given, dq, value_gradients, at_rows, own, MADE)
    else:
        store_rows(side.sums, acc, unit * 0, unit, slot, own, MADE.D, MADE.PD, False)
        for t in tl.static_range(SUMS):
            tl.store(at_limits(side.weights[t], unit * 0, unit, slot), sums[t], mask=own)


@triton.jit
def query_gradients(
    given, out, grad, limits, means, dq, value_gradients, side, broken, rows, parts, places, tiles,
    MADE: tl.constexpr,
):  # fmt: skip
    """dq of a walk's rows, their mean gradient (which the keys' kernel reads after), and the
    gradients of a bell's variance, a ramp's span and (row by row) a slope and a bias that has one
    number for all keys of a row; or, of several CHUNKS, what each sums.

    The mean is that of the output's product with its gradient, which costs nothing; or, EXACT, that
    of the pairs, so that a row with one pair has a gradient of 0 and not of a rounding error.
    """
    _differentiate(
        tl.program_id(0), tl.program_id(1), given, out, grad, limits, means, dq, value_gradients,
        side, broken, rows, parts, places, tiles, MADE,
    )  # fmt: skip


@triton.jit
def repair_query_gradients(
    given, out, grad, limits, means, dq, value_gradients, side, broken, rows, parts, places, tiles,
    units, MADE: tl.constexpr, PIECES: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """The tiles in which a NaN appeared, once more, pair by pair."""
    start = tl.program_id(0) * SPAN
    if has_broken(broken, start, tiles * units, SPAN):
        for work in range(start, tl.minimum(start + SPAN, tiles * units)):
            if tl.load(broken + work) > 0:
                for piece in range(PIECES):
                    _differentiate(
                        work % tiles * PIECES + piece, work // tiles, given, out, grad, limits,
                        means, dq, value_gradients, side, broken, rows, parts, places, tiles, MADE,
                    )  # fmt: skip


@triton.jit
def sum_means(given, grad, limits, side, rows, parts, places, MADE: tl.constexpr):
    """What a chunk adds to the exact mean gradient of rows, which every chunk's dq needs whole."""
    BM: tl.constexpr = MADE.BM
    tile, unit = tl.program_id(0), tl.program_id(1)
    at_rows = place_of(rows, tile, unit // MADE.CHUNKS, given.shift, places, MADE)
    query, gradient, limit = _given_rows(given, grad, limits, tile, at_rows, MADE)
    none = tl.zeros([BM], tl.float32)
    _, sums = _all_keys(
        query, gradient, given, parts, at_rows, tile, unit % MADE.CHUNKS, limit, none, 2, True,
        MADE,
    )  # fmt: skip
    slot, live = at_rows.slot, at_rows.live
    tl.store(at_limits(side.over, unit * 0, unit, slot), sums[0], mask=live)
    tl.store(at_limits(side.under, unit * 0, unit, slot), sums[1], mask=live)


@triton.jit
def join_query_gradients(given, dq, value_gradients, side, rows, parts, places, MADE: tl.constexpr):
    """Adds up the chunks of a walk's rows."""
    SUMS: tl.constexpr = MADE.SUMS
    CHUNKS: tl.constexpr = MADE.CHUNKS
    BM: tl.constexpr = MADE.BM
    PD: tl.constexpr = MADE.PD
    unit = tl.program_id(1)
    at_rows = place_of(rows, tl.program_id(0), unit, given.shift, places, MADE)
    slot, live = at_rows.slot, at_rows.live
    acc = tl.zeros([BM, PD], tl.float32)
    sums = ()
    for _ in tl.static_range(SUMS):
        sums = sums + (tl.zeros([BM], tl.float32),)
    for chunk in tl.static_range(CHUNKS):
        own = unit * CHUNKS + chunk
        acc += load_rows(side.sums, unit * 0, own, slot, live, MADE.D, PD)
        for t in tl.static_range(SUMS):
            more = tl.load(at_limits(side.weights[t], unit * 0, own, slot), mask=live, other=0.0)
            sums = added(sums, more, t)
    to = live
    if not MADE.FIRST:
        to = live & some_interval(given, parts, at_rows, MADE)
    _finish(acc, sums, given, dq, value_gradients, at_rows, to, MADE)
