"""What every kernel asks about a tile: which rows and keys, which pairs exist, what weights do.

Parts and weights have tuples of constants, by which a kernel is specialised:
    KINDS: for each part (keys have an index, some are struck out, documents, tile list: 1, or 2 for
        one of full tiles, the bits of the weights that act, the stride of its order of keys, keys
        of a tile at most)
    TERMS: for each weight (kind, its number, normalised, the place of its gradient or −1)
    REACHES: the numbers of the weights that cut, beside `reaches`: how far each row looks
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ...weights import conversions

BELL_BIAS = tl.constexpr(0)
BELL_SCORE = tl.constexpr(1)
BELL_WEIGHT = tl.constexpr(2)
RAMP = tl.constexpr(3)
BIAS = tl.constexpr(4)
DISTANCE = tl.constexpr(5)
ALIBI = tl.constexpr(6)

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NARROWEST = tl.constexpr(conversions.NARROWEST)
LOWEST_RAMP = tl.constexpr(1.1754944e-38)


class Place(NamedTuple):
    """Some query rows of one sample and head: their slots in the walk's order, which of them there
    are, and their positions among queries and among keys.
    """

    b: Any
    h: Any
    place: Any
    slot: Any
    live: Any
    row: Any
    i: Any


@triton.jit
def place_of(rows, tile, unit, shift, places, MADE: tl.constexpr):
    """A tile of a walk's rows, for one sample and head (a unit)."""
    b = unit // places
    place = unit % places
    h = head_of(rows, place, MADE.LISTED)
    slot = tile * MADE.BM + tl.arange(0, MADE.BM)
    live = slot < rows.length
    row = row_of(rows, b, slot, live, MADE.INDEXED)
    return Place(b, h, place, slot, live, row, row + shift)


@triton.jit
def head_of(rows, place, LISTED: tl.constexpr):
    """The query head at a place among the walk's own."""
    return tl.load(rows.heads + place) if LISTED else place


@triton.jit
def row_of(rows, b, slot, live, INDEXED: tl.constexpr):
    """Query rows at slots of the walk's order; 0 where there is none."""
    if INDEXED:
        return tl.load(rows.order + b * rows.order_batch + slot, mask=live, other=0)
    else:
        return tl.where(live, slot, 0)


@triton.jit
def at(values, b, h, row):
    """Pointers to numbers `(B|1, H|1, N|1)` of some rows."""
    start = values.data + b.to(tl.int64) * values.batch + h.to(tl.int64) * values.head
    return start + row.to(tl.int64) * values.row


@triton.jit
def load_rows(x, b, h, row, live, SIZE: tl.constexpr, PADDED: tl.constexpr):
    """Rows `(…, PADDED)` of a tensor `(B, H, N, SIZE)`, 0 where `live` is not."""
    d = tl.arange(0, PADDED)
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    place = start + row.to(tl.int64)[:, None] * x.row + d[None, :]
    if PADDED == SIZE:
        return tl.load(place, mask=live[:, None], other=0.0)
    else:
        return tl.load(place, mask=live[:, None] & (d < SIZE)[None, :], other=0.0)


@triton.jit
def load_run(
    x, b, h, start, live,
    SIZE: tl.constexpr, PADDED: tl.constexpr, COUNT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """COUNT rows that follow one another: one pointer, and offsets that are small however long the
    tensor is.
    """
    d = tl.arange(0, PADDED)
    wide = b.to(tl.int64)
    base = x.data + wide * x.batch + h.to(tl.int64) * x.head + (wide * 0 + start) * x.row
    place = base + (tl.arange(0, COUNT)[:, None] * x.row + d[None, :])
    if MASKED:
        return tl.load(place, mask=live[:, None] & (d < SIZE)[None, :], other=0.0)
    elif PADDED == SIZE:
        return tl.load(place)
    else:
        return tl.load(place, mask=(d < SIZE)[None, :], other=0.0)


@triton.jit
def load_tile(
    x, b, h, start, row, live, SIZE: tl.constexpr, PADDED: tl.constexpr, COUNT: tl.constexpr,
    INDEXED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Rows of an order from a slot on, `(COUNT, PADDED)`."""
    if INDEXED:
        return load_rows(x, b, h, row, live, SIZE, PADDED)
    else:
        return load_run(x, b, h, start, live, SIZE, PADDED, COUNT, MASKED)


@triton.jit
def store_rows(
    x, values, b, h, row, live, SIZE: tl.constexpr, PADDED: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Writes rows, or adds to what is there."""
    d = tl.arange(0, PADDED)
    start = x.data + b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head
    place = start + row.to(tl.int64)[:, None] * x.row + d[None, :]
    mask = live[:, None] & (d < SIZE)[None, :]
    if ADD:
        values += tl.load(place, mask=mask, other=0.0).to(tl.float32)
    tl.store(place, values.to(x.data.dtype.element_ty), mask=mask)


@triton.jit
def interval(
    part, reaches, b, h, place, slot, live, row, i,
    KINDS: tl.constexpr, P: tl.constexpr, REACHES: tl.constexpr,
):  # fmt: skip
    """First key of every row and one past its last, in slots of the part's order; (0, 0) for
    none.
    """
    start = part.low + b * part.low_batch + place * part.low_head
    low = tl.load(start + slot, mask=live, other=0)
    start = part.high + b * part.high_batch + place * part.high_head
    high = tl.load(start + slot, mask=live, other=0)
    for r in tl.static_range(len(REACHES)):
        if (KINDS[P][4] >> REACHES[r]) & 1:
            reach = tl.load(at(reaches[r], b, h, row), mask=live, other=0)
            if not KINDS[P][0]:
                low = tl.maximum(low, i - reach)
                high = tl.minimum(high, i + reach + 1)
            elif KINDS[P][5] > 1:
                # A row's keys lie a stride apart, from the one at `low` on.
                start = part.order + b * part.order_batch + low
                offset = i - tl.load(start, mask=live & (low < high), other=0)
                upto = tl.maximum(offset + reach + KINDS[P][5], 0) // KINDS[P][5]
                high = tl.minimum(high, low + upto)
                low += (tl.maximum(offset - reach, 0) + KINDS[P][5] - 1) // KINDS[P][5]
    some = low < high
    return tl.where(some, low, 0), tl.where(some, high, 0)


@triton.jit
def narrowed(low, high, length, chunk, CHUNKS: tl.constexpr):
    """What the rows' intervals have in one of CHUNKS runs of keys; (0, 0) for nothing."""
    span = tl.cdiv(tl.cdiv(length, CHUNKS), 64) * 64
    low = tl.maximum(low, chunk * span)
    high = tl.minimum(high, chunk * span + span)
    some = low < high
    return tl.where(some, low, 0), tl.where(some, high, 0)


@triton.jit
def key_range(low, high, BN: tl.constexpr, PLAIN: tl.constexpr):
    """Where the keys that a tile of rows meets begin, a multiple of 4 for `kept`; from where to
    where, in steps of BN, every row has whole tiles of keys, if the part has no holes; and one past
    the last key.
    """
    # Not `low < high`, which Triton 3.6 cannot give a layout in some kernels; none is (0, 0).
    first = tl.min(tl.where(high > 0, low, 2147483647), 0)
    last = tl.max(high, 0)
    # Where there is none: a start far off would overflow as the loop is pipelined.
    first = tl.minimum(first, last) // 4 * 4
    inner_first = last
    inner_last = last
    if PLAIN:
        inner_first = first + tl.cdiv(tl.max(low, 0) - first, BN) * BN
        inner_last = first + tl.maximum(tl.min(high, 0) - first, 0) // BN * BN
        inner_first = tl.minimum(inner_first, last)
        inner_last = tl.minimum(tl.maximum(inner_last, inner_first), last)
    return first, inner_first, inner_last, last


@triton.jit
def keys_at(part, b, key_slot, KINDS: tl.constexpr, P: tl.constexpr):
    """Key positions at slots of the part's order, which of them there are, and which of these may
    be looked at.

    The second is for loads: they need not wait until it is known which keys are struck out. A NaN
    in one of those is met, and mended, as one outside of a row's interval is.
    """
    inside = key_slot < part.length
    present = inside
    if KINDS[P][0]:
        key = tl.load(part.order + b * part.order_batch + key_slot, mask=inside, other=0)
    else:
        key = tl.where(inside, key_slot, 0)
    if KINDS[P][1]:
        allowed = tl.load(part.allowed + b * part.allowed_batch + key_slot, mask=inside, other=0)
        present = inside & (allowed != 0)
    return key, inside, present


@triton.jit
def pairs_of(
    part, reaches, b, h, slot, live, row, i, low, high, key_slot, key, present, words,
    KINDS: tl.constexpr, P: tl.constexpr, REACHES: tl.constexpr,
):  # fmt: skip
    """Which pairs of a tile exist, `(rows, keys)`; `words` are the rows' bits in a tile list."""
    exists = (key_slot[None, :] >= low[:, None]) & (key_slot[None, :] < high[:, None])
    exists = exists & present[None, :]
    for d in tl.static_range(len(part.documents)):
        own = part.documents[d]
        row_id = tl.load(own.rows + b * own.rows_batch + slot, mask=live, other=0)
        key_id = tl.load(own.keys + b * own.keys_batch + key_slot, mask=present, other=0)
        exists = exists & (row_id[:, None] == key_id[None, :])
    if KINDS[P][3] == 1:
        bit = (key_slot % 64).to(tl.int64)
        exists = exists & (((words[:, None] >> bit[None, :]) & 1) != 0)
    if KINDS[P][0]:
        for r in tl.static_range(len(REACHES)):
            if (KINDS[P][4] >> REACHES[r]) & 1:
                reach = tl.load(at(reaches[r], b, h, row), mask=live, other=0)
                exists = exists & (tl.abs(key[None, :] - i[:, None]) <= reach[:, None])
    return exists


@triton.jit
def turns_of(starts, place, SIZE: tl.constexpr):
    """The turns of a loop over the tiles that a list has at a place, each in pieces of SIZE. One
    loop, so that some are loaded while others are computed.
    """
    first = tl.load(starts + place) * (64 // SIZE)
    return first, tl.load(starts + place + 1) * (64 // SIZE)


@triton.jit
def at_turn(tiles, turn, SIZE: tl.constexpr):
    """The entry of a turn in the list, and the number of its piece among all of that SIZE."""
    entry = turn // (64 // SIZE)
    return entry, tl.load(tiles + entry) * (64 // SIZE) + turn % (64 // SIZE)


@triton.jit
def tile_words(part, b, place, slot, entry, KINDS: tl.constexpr, P: tl.constexpr):
    """The bits of some rows in one tile of a list; anything where all tiles are full."""
    if KINDS[P][3] == 2:
        return tl.zeros_like(slot).to(tl.int64)
    else:
        own = tl.load(part.mask + b * part.mask_batch + place * part.mask_head + entry)
        words = tl.load(part.words + tl.maximum(own, 0).to(tl.int64) * 64 + slot % 64)
        return tl.where(own == -1, -1, tl.where(own == -2, 0, words))


@triton.jit
def variance_of(term, b, h, row, live):
    """A bell's variance for some rows, NaN where it is not above 0."""
    variance = tl.load(at(term, b, h, row), mask=live, other=1.0)
    return tl.where(variance > 0.0, tl.maximum(variance, NARROWEST), float("nan"))


@triton.jit
def span_of(term, b, h, row, live):
    """A ramp's span for some rows, NaN where it is not finite."""
    span = tl.load(at(term, b, h, row), mask=live, other=0.0)
    return tl.where(tl.abs(span) < float("inf"), span, float("nan"))


@triton.jit
def bell_log(distance, variance, NORMALIZED: tl.constexpr):
    curve = distance * distance * (-0.5 / variance)[:, None]
    if NORMALIZED:
        curve -= (0.5 * tl.log(6.283185307179586 * variance))[:, None]
    return curve


@triton.jit
def ramp_of(term, distance, span):
    found = (term.softness + span[:, None] - tl.abs(distance)) * (1.0 / term.softness)
    return tl.minimum(tl.maximum(found, LOWEST_RAMP), 1.0)


@triton.jit
def weighed(
    s, exists, terms, b, h, row, live, i, key, ACTIVE: tl.constexpr, TERMS: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Scores after the first COUNT weights, and the pairs that they leave."""
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(COUNT):
        if (ACTIVE >> TERMS[t][1]) & 1:
            term = terms[t]
            if TERMS[t][0] == BELL_BIAS:
                variance = variance_of(term, b, h, row, live)
                s += bell_log(distance, variance, TERMS[t][2])
            elif TERMS[t][0] == BELL_SCORE:
                variance = variance_of(term, b, h, row, live)
                s *= tl.exp(bell_log(distance, variance, TERMS[t][2]))
            elif TERMS[t][0] == RAMP:
                span = span_of(term, b, h, row, live)
                more = tl.log(ramp_of(term, distance, span))
                s = tl.where((span == span)[:, None], s + more, span[:, None])
            elif TERMS[t][0] == BIAS:
                start = at(term, b, h, row)[:, None] + key.to(tl.int64)[None, :] * term.key
                bias = tl.load(start, mask=exists, other=0.0).to(tl.float32)
                gone = bias <= term.lowest
                s += tl.where(gone, 0.0, bias)
                exists = exists & ~gone
            elif TERMS[t][0] == DISTANCE:
                place = key[None, :] - i[:, None] + (term.length - 1 - term.right)
                place = tl.minimum(tl.maximum(place, 0), term.length - 1)
                s += tl.load(term.data + h * term.head + place)
            elif TERMS[t][0] == ALIBI:
                s -= tl.load(term.data + h * term.head) * tl.abs(distance)
    return s, exists


@triton.jit
def scores(
    product, exists, terms, scale, b, h, row, live, i, key, ACTIVE: tl.constexpr,
    TERMS: tl.constexpr,
):  # fmt: skip
    """Scores of a tile after all weights, times log2(e), and the pairs that are left."""
    if len(TERMS) == 0:
        return product * (scale * LOG2E), exists
    else:
        s, exists = weighed(
            product * scale, exists, terms, b, h, row, live, i, key, ACTIVE, TERMS, len(TERMS)
        )
        return s * LOG2E, exists


@triton.jit
def stays(word, drop):
    """Which pairs with these random words dropout keeps, 1 or 0."""
    return (word.to(tl.uint32) >= drop.least.to(tl.uint32)).to(tl.int8)


@triton.jit
def kept(drop, b, h, i, key, start, RUN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Which pairs of a tile dropout keeps, 1 or 0.

    A draw has the words of four neighbouring keys. Where keys follow one another (a RUN), from
    `start` on, a multiple of 4, it is made once for the four; else every pair makes its own.
    """
    if RUN:
        zero = tl.zeros([BM, BN // 4], tl.int32)
        group = start // 4 + tl.arange(0, BN // 4)
        words = tl.philox(
            tl.load(drop.seed), zero + group[None, :], zero + i[:, None], zero + h, zero + b
        )
        even = tl.join(stays(words[0], drop), stays(words[2], drop))
        odd = tl.join(stays(words[1], drop), stays(words[3], drop))
        return tl.reshape(tl.join(even, odd), [BM, BN])
    else:
        zero = tl.zeros([BM, BN], tl.int32)
        j = zero + key[None, :]
        words = tl.philox(tl.load(drop.seed), j >> 2, zero + i[:, None], zero + h, zero + b)
        lane = j & 3
        first = tl.where(lane == 0, words[0], words[1])
        return stays(tl.where(lane < 2, first, tl.where(lane == 2, words[2], words[3])), drop)


@triton.jit
def multiplier(
    terms, drop, b, h, row, live, i, key, start, INDEXED: tl.constexpr, ACTIVE: tl.constexpr,
    TERMS: tl.constexpr, DROPOUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """What multiplies the probabilities after the normaliser: factors of weights, and dropout.
    `start` is the first key, where keys are not INDEXED.
    """
    found = tl.full([BM, BN], 1.0, tl.float32)
    distance = (key[None, :] - i[:, None]).to(tl.float32)
    for t in tl.static_range(len(TERMS)):
        if (ACTIVE >> TERMS[t][1]) & 1:
            if TERMS[t][0] == BELL_WEIGHT:
                variance = variance_of(terms[t], b, h, row, live)
                found *= tl.exp(bell_log(distance, variance, TERMS[t][2]))
    if DROPOUT:
        own = kept(drop, b, h, i, key, start, not INDEXED, BM, BN)
        found = tl.where(own != 0, found * drop.scale, 0.0)
    return found


@triton.jit
def dot_added(a, x, total, K: tl.constexpr, MADE: tl.constexpr):
    """total + a x.

    In float32 a tile's K products are summed first and then added: one running sum over thousands
    of rows would be off by the square root of their number. The compiler makes one sum of the two
    unless it is told how long sums may be.
    """
    if x.dtype.primitive_bitwidth < 32:
        total = tl.dot(a, x, total, input_precision=MADE.PRECISION)
    else:
        total += tl.dot(a, x, input_precision=MADE.PRECISION, max_num_imprecise_acc=K)
    return total


@triton.jit
def careful_dot(a, exists, x, total, K: tl.constexpr):
    """total + a x over the pairs that exist alone, key by key: for tiles with a NaN or an infinity,
    which 0 times must not come near.
    """
    place = tl.arange(0, K)
    for j in range(K):
        own = place == j
        weight = tl.sum(tl.where(own[None, :], a, 0.0), 1)
        seen = tl.max(tl.where(own[None, :], exists.to(tl.int32), 0), 1)
        values = tl.sum(tl.where(own[:, None], x.to(tl.float32), 0.0), 0)
        total += tl.where(seen[:, None] > 0, weight[:, None] * values[None, :], 0.0)
    return total
