"""A tile of pairs as the gradients of biases read it: its rows, its keys, the gradient of its
scores.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .outputs import at_limits, load_limits
from .pairs import (
    BELL_SCORE,
    bell_log,
    interval,
    keys_at,
    load_tile,
    multiplier,
    pairs_of,
    row_of,
    scores,
    tile_words,
    variance_of,
)
from .queries import score_gradient


@triton.jit
def rows_of_tile(
    tile, given, grad, limits, means, rows, part, b, h, place, MADE: tl.constexpr,
):  # fmt: skip
    """A tile of query rows: slots, which are live, rows, positions, intervals, the queries and
    their outputs' gradients, log-sum-exp (times log2(e)) and mean gradient.
    """
    BM: tl.constexpr = MADE.BM
    INDEXED: tl.constexpr = MADE.INDEXED
    KINDS: tl.constexpr = MADE.KINDS
    REACHES: tl.constexpr = MADE.REACHES
    slot = tile * BM + tl.arange(0, BM)
    live = slot < rows.length
    row = row_of(rows, b, slot, live, INDEXED)
    i = row + given.shift
    low, high = interval(part, given.reaches, b, h, place, slot, live, row, i, KINDS, 0, REACHES)
    query = load_tile(given.q, b, h, tile * BM, row, live, MADE.D, MADE.PD, BM, INDEXED, True)
    gradient = load_tile(grad, b, h, tile * BM, row, live, MADE.DV, MADE.PDV, BM, INDEXED, True)
    limit = load_limits(limits, b, h, row, live)
    mean = tl.load(at_limits(means, b, h, row), mask=live, other=0.0)
    return slot, live, row, i, low, high, query, gradient, limit, mean


@triton.jit
def keys_of_tile(start, given, part, b, h, MADE: tl.constexpr):
    """A tile of keys: slots, positions, which may be looked at, the keys, their values, and where
    it starts.
    """
    BN: tl.constexpr = MADE.BN
    KINDS: tl.constexpr = MADE.KINDS
    INDEXED: tl.constexpr = KINDS[0][0]
    head = h // given.each
    key_slot = start + tl.arange(0, BN)
    key, _, present = keys_at(part, b, key_slot, KINDS, 0)
    keys = load_tile(given.k, b, head, start, key, present, MADE.D, MADE.PD, BN, INDEXED, True)
    values = load_tile(given.v, b, head, start, key, present, MADE.DV, MADE.PDV, BN, INDEXED, True)
    return key_slot, key, present, keys, values, start


@triton.jit
def gradient_after(
    tile_rows, tile_keys, entry, given, part, b, h, place, WHICH: tl.constexpr,
    MADE: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile's scores as they are after the weight number WHICH, 0 where no pair
    exists; `entry` is the tile's place in a tile list.
    """
    BM: tl.constexpr = MADE.BM
    BN: tl.constexpr = MADE.BN
    KINDS: tl.constexpr = MADE.KINDS
    TERMS: tl.constexpr = MADE.TERMS
    REACHES: tl.constexpr = MADE.REACHES
    slot, live, row, i, low, high, query, gradient, limit, mean = tile_rows
    key_slot, key, present, keys, values, start = tile_keys
    words = tl.zeros([BM], tl.int64)
    if KINDS[0][3]:
        words = tile_words(part, b, place, slot, entry, KINDS, 0)
    product = tl.dot(query, tl.trans(keys), input_precision=MADE.PRECISION)
    da = tl.dot(gradient, tl.trans(values), input_precision=MADE.PRECISION)
    exists = pairs_of(
        part, given.reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words,
        KINDS, 0, REACHES,
    )  # fmt: skip
    s, exists = scores(
        product, exists, given.terms, given.scale, b, h, row, live, i, key, KINDS[0][4], TERMS
    )
    factor = tl.full([BM, BN], 1.0, tl.float32)
    if MADE.DROPOUT or MADE.FACTORS:
        factor = multiplier(
            given.terms, given.drop, b, h, row, live, i, key, start, KINDS[0][0], KINDS[0][4],
            TERMS, MADE.DROPOUT, BM, BN,
        )  # fmt: skip
    _, ds = score_gradient(
        s, limit, exists, da, factor, mean, MADE.DROPOUT or MADE.FACTORS, True, query.dtype
    )
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS) - 1, WHICH, -1):
        if (KINDS[0][4] >> TERMS[t][1]) & 1:
            if TERMS[t][0] == BELL_SCORE:
                variance = variance_of(given.terms[t], b, h, row, live)
                bell = tl.exp(bell_log(distance, variance, TERMS[t][2]))
                ds = tl.where(ds == 0.0, 0.0, ds * bell)
    return ds
