"""The budget of the learned window: the one factor c of a sample with Σ min(c·s, cap) = total, what
every token gets by it, and the gradient of that.

f(c) = Σ min(c·s, cap) is concave and piecewise linear. Of a set of capped tokens its tangent meets
the total at (total − cap·capped) / Σ free s, which is never above the answer, and is the answer
where the set is right. A short sample is one program's, which goes from tangent to tangent
(Newton's method): each has more capped tokens than the last, until one has as many, so it ends
whatever the shares are, NaN among them.

A long one has many programs, and each launch tries several factors at once. The best tangent is a
lower bound; the chord between the nearest factors on both sides of the total is an upper one; and
the next launch tries factors between the two. After three they are one but for rounding; where they
are not, each program goes on by itself, from tangent to tangent.

All sums are float64, in one order.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from . import window

TRIED = tl.constexpr(16)
SHORTEST, LONGEST = tl.constexpr(window.SHORTEST), tl.constexpr(window.LONGEST)
# How near one another bounds of c are when they are one: results are float32.
NEAR = tl.constexpr(2.0**-27)


class Masks(NamedTuple):
    """Which tokens are real, and which are global, uint8 `(B, N)`; anything in place of None."""

    real: Tensor
    real_batch: int
    whole: Tensor
    whole_batch: int


@triton.jit
def _exact(x: tl.constexpr):
    """A number as it is: an argument, or a number beside a tensor, is rounded to float32."""
    return tl.full([], x, tl.float64)


@triton.jit
def _counted(masks, sample, place, live, rows, PADDED: tl.constexpr, GLOBAL: tl.constexpr):
    """Who takes part in the budget: real tokens that are not global."""
    token = place % rows
    counts = live
    if PADDED:
        at = masks.real + sample.to(tl.int64) * masks.real_batch + token
        counts = counts & (tl.load(at, mask=live, other=0) != 0)
    if GLOBAL:
        at = masks.whole + sample.to(tl.int64) * masks.whole_batch + token
        counts = counts & (tl.load(at, mask=live, other=0) == 0)
    return counts


@triton.jit
def _asked(share, counts, SQUARED: tl.constexpr):
    """What is shared out in proportion to, float64; 0 for what does not count."""
    wide = share.to(tl.float64)
    if SQUARED:
        wide = wide * wide
    return tl.where(counts, wide, 0.0)


@triton.jit
def _settled(
    c, free, tokens, smallest, MEAN: tl.constexpr, CAP: tl.constexpr, SQUARED: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """The factor of reaches, and the sum of free shares, which is 0 where the factor does not
    follow the shares.
    """
    # The budget is not below all caps together.
    if MEAN >= CAP:
        free = tl.zeros_like(free)
    c = tl.where(free == 0.0, _exact(CAP) / smallest, c)
    if SQUARED:
        c = tl.sqrt(c)
    found = (c > 0.0) & (tokens > 0.0)
    return tl.where(found, c, _exact(START)), tl.where(found, free, 0.0)


@triton.jit
def _written(out, capped, place, live, share, c, MOST: tl.constexpr, WIDTH: tl.constexpr):
    """The reach of tokens, or its variance, and the reach with its cap."""
    reach = (c * share.to(tl.float64)).to(tl.float32)
    # NaN stays what it is.
    reach = tl.where(reach < SHORTEST, SHORTEST, tl.where(reach > LONGEST, LONGEST, reach))
    tl.store(capped + place, tl.where(reach > MOST, MOST, reach), mask=live)
    if WIDTH > 0.0:
        wide = reach.to(tl.float64)
        reach = (wide * wide / _exact(WIDTH)).to(tl.float32)
    tl.store(out + place, reach, mask=live)


@triton.jit
def _remembered(state, sample, c, free, least):
    tl.store(state + sample * 3, c)
    tl.store(state + sample * 3 + 1, free)
    tl.store(state + sample * 3 + 2, least)


@triton.jit
def _capped_by(c, asked, counts, CAP: tl.constexpr):
    """How many a factor caps, and the sum of the others' shares."""
    over = counts & (asked >= _exact(CAP) / c)
    return tl.sum(over.to(tl.int32)), tl.sum(tl.where(over, 0.0, asked))


@triton.jit(do_not_specialize=["rows", "length"])
def budget_of_one(
    shares, masks, out, capped, state, rows, length,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, MEAN: tl.constexpr, CAP: tl.constexpr,
    SQUARED: tl.constexpr, MOST: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A whole sample in one program. Of its `state` a backward needs the factor, the sum of the
    free shares, and the least share that is capped.
    """
    sample = tl.program_id(0)
    first = sample.to(tl.int64) * length
    shares, out, capped = shares + first, out + first, capped + first
    place = tl.arange(0, BLOCK)
    live = place < length
    share = tl.load(shares + place, mask=live, other=0.0)
    counts = _counted(masks, sample, place, live, rows, PADDED, GLOBAL)
    asked = _asked(share, counts, SQUARED)
    tokens = tl.sum(counts.to(tl.int32)).to(tl.float64)
    smallest = tl.min(tl.where(counts, asked, float("inf")))
    total, cap = tokens * _exact(MEAN), _exact(CAP)
    free, least = tl.sum(asked), _exact(float("inf"))
    c = total / free
    before = 0
    over, rest = _capped_by(c, asked, counts, CAP)
    while (over > before) & (free > 0.0):
        before = over
        least, free = cap / c, rest
        c = (total - cap * over.to(tl.float64)) / free
        over, rest = _capped_by(c, asked, counts, CAP)
    c, free = _settled(c, free, tokens, smallest, MEAN, CAP, SQUARED, START)
    _written(out, capped, place, live, share, c, MOST, WIDTH)
    _remembered(state, sample, c, free, least)


@triton.jit
def _bounds(
    tried, tally, seen, sample, number, batch, MEAN: tl.constexpr, CAP: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """What the launches before say of a sample: between which factors c lies; which tokens the
    lower one has capped, by their least share, and the sum of the others; how many count, and the
    smallest share.
    """
    part, one = tl.arange(0, PARTS), tl.arange(0, TRIED)
    at = seen + (sample * PARTS + part) * 2
    tokens, smallest = tl.sum(tl.load(at)), tl.min(tl.load(at + 1))
    row = number * batch + sample
    at = tally + (row * PARTS + part[:, None]) * (2 * TRIED) + one[None, :]
    counted, free = tl.sum(tl.load(at), 0), tl.sum(tl.load(at + TRIED), 0)
    c = tl.load(tried + row * TRIED + one)
    left = tokens * _exact(MEAN) - _exact(CAP) * counted
    tangent = tl.where((left > 0.0) & (free > 0.0), left / free, 0.0)
    low = tl.max(tangent)
    best = tl.min(tl.where(tangent == low, one, TRIED))
    least = tl.sum(tl.where(one == best, _exact(CAP) / c, 0.0))
    own = tl.sum(tl.where(one == best, free, 0.0))
    # What is not spent yet with each of them, which is less with every next one.
    gap = left - c * free
    below, above = gap >= 0.0, gap < 0.0
    left_of = tl.max(tl.where(below, c, 0.0))
    right_of = tl.min(tl.where(above, c, float("inf")))
    unspent = tl.min(tl.where(below, gap, float("inf")))
    overspent = tl.max(tl.where(above, gap, float("-inf")))
    chord = left_of + unspent * (right_of - left_of) / (unspent - overspent)
    high = tl.where(right_of < float("inf"), chord, _exact(CAP) / smallest)
    return low, tl.maximum(high, low), least, own, tokens, smallest


@triton.jit(do_not_specialize=["rows", "length", "each", "batch", "number"])
def try_factors(
    shares, masks, tried, tally, seen, rows, length, each, batch, number,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, MEAN: tl.constexpr, CAP: tl.constexpr,
    SQUARED: tl.constexpr, FIRST: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How many tokens of a part of a sample each of some factors caps, and the sum of the others'
    shares.
    """
    part, sample = tl.program_id(0), tl.program_id(1)
    shares += sample.to(tl.int64) * length
    one = tl.arange(0, TRIED)
    if FIRST:
        # None, and for reaches each four times the last, around what is right for shares of 1.
        STEP: tl.constexpr = 4.0 if SQUARED else 2.0
        steps = tl.exp2(STEP * (one - TRIED // 2).to(tl.float32)).to(tl.float64)
        c = tl.where(one == 0, 0.0, steps * _exact(MEAN))
    else:
        low, high, _, _, _, _ = _bounds(
            tried, tally, seen, sample, number - 1, batch, MEAN, CAP, PARTS
        )
        # A little beyond both: rounding must not put c outside.
        low, high = low * (1.0 - NEAR / 64.0), tl.minimum(high * (1.0 + NEAR / 64.0), low * 4096.0)
        c = low + (high - low) * (one.to(tl.float64) / (TRIED - 1.0))
    least = _exact(CAP) / c
    number_of = tl.zeros([TRIED], tl.float64)
    free = tl.zeros([TRIED], tl.float64)
    tokens = tl.zeros([BLOCK], tl.int32)
    smallest = tl.full([BLOCK], float("inf"), tl.float64)
    for start in range(part * each, tl.minimum((part + 1) * each, length), BLOCK):
        place = start + tl.arange(0, BLOCK)
        live = place < length
        counts = _counted(masks, sample, place, live, rows, PADDED, GLOBAL)
        share = tl.load(shares + place, mask=counts, other=0.0)
        asked = _asked(share, counts, SQUARED)
        over = (asked[:, None] >= least[None, :]) & counts[:, None]
        number_of += tl.sum(over.to(tl.int32), 0).to(tl.float64)
        free += tl.sum(tl.where(over, 0.0, asked[:, None]), 0)
        if FIRST:
            tokens += counts.to(tl.int32)
            smallest = tl.minimum(smallest, tl.where(counts, asked, float("inf")))
    row = number * batch + sample
    at = tally + (row * PARTS + part) * (2 * TRIED) + one
    tl.store(at, number_of)
    tl.store(at + TRIED, free)
    if part == 0:
        tl.store(tried + row * TRIED + one, c)
    if FIRST:
        at = seen + (sample * PARTS + part) * 2
        tl.store(at, tl.sum(tokens).to(tl.float64))
        tl.store(at + 1, tl.min(smallest))


@triton.jit
def _with_factor(
    c, shares, masks, sample, rows, length,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, CAP: tl.constexpr, SQUARED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """How many of a sample a factor caps, and the sum of the others' shares."""
    least = _exact(CAP) / c
    number = tl.zeros([BLOCK], tl.int32)
    free = tl.zeros([BLOCK], tl.float64)
    for start in range(0, length, BLOCK):
        place = start + tl.arange(0, BLOCK)
        counts = _counted(masks, sample, place, place < length, rows, PADDED, GLOBAL)
        share = tl.load(shares + place, mask=counts, other=0.0)
        asked = _asked(share, counts, SQUARED)
        over = (asked >= least) & counts
        number += over.to(tl.int32)
        free += tl.where(over, 0.0, asked)
    return tl.sum(number), tl.sum(free)


@triton.jit(do_not_specialize=["rows", "length", "each", "batch", "number"])
def budget_of_many(
    shares, masks, tried, tally, seen, out, capped, state, rows, length, each, batch, number,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, MEAN: tl.constexpr, CAP: tl.constexpr,
    SQUARED: tl.constexpr, MOST: tl.constexpr, START: tl.constexpr, WIDTH: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A part of a sample, for which the launches before found the factor; as `budget_of_one`."""
    part, sample = tl.program_id(0), tl.program_id(1)
    first = sample.to(tl.int64) * length
    shares, out, capped = shares + first, out + first, capped + first
    c, high, least, free, tokens, smallest = _bounds(
        tried, tally, seen, sample, number - 1, batch, MEAN, CAP, PARTS
    )
    if (MEAN < CAP) & (c > 0.0) & (high - c > c * NEAR):
        total, before = tokens * _exact(MEAN), -1
        over, rest = _with_factor(
            c, shares, masks, sample, rows, length, PADDED, GLOBAL, CAP, SQUARED, BLOCK
        )
        while (over > before) & (free > 0.0):
            before = over
            least, free = _exact(CAP) / c, rest
            c = (total - _exact(CAP) * over.to(tl.float64)) / free
            over, rest = _with_factor(
                c, shares, masks, sample, rows, length, PADDED, GLOBAL, CAP, SQUARED, BLOCK
            )
    c, free = _settled(c, free, tokens, smallest, MEAN, CAP, SQUARED, START)
    for start in range(part * each, tl.minimum((part + 1) * each, length), BLOCK):
        place = start + tl.arange(0, BLOCK)
        live = place < length
        share = tl.load(shares + place, mask=live, other=0.0)
        _written(out, capped, place, live, share, c, MOST, WIDTH)
    if part == 0:
        _remembered(state, sample, c, free, least)


@triton.jit
def _to_reach(grad, place, live, share, c, WIDTH: tl.constexpr):
    """The gradient of reaches, float64, from that of what was made of them."""
    g = tl.load(grad + place, mask=live, other=0.0).to(tl.float64)
    reach = (c * share.to(tl.float64)).to(tl.float32)
    if WIDTH > 0.0:
        g = g * 2.0 * reach.to(tl.float64) / _exact(WIDTH)
    return tl.where(reach > LONGEST, 0.0, g)


@triton.jit
def _to_shares(
    found, masks, sample, place, live, rows, share, g, moved, c, free, least,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Each share widens its own token, and, unless it is capped, takes from all."""
    counts = _counted(masks, sample, place, live, rows, PADDED, GLOBAL)
    asked = _asked(share, counts, SQUARED)
    taken = tl.where(free > 0.0, c / free * moved, 0.0)
    wide = share.to(tl.float64)
    each = wide if SQUARED else tl.full(wide.shape, 1.0, tl.float64)
    to_share = c * g - tl.where(counts & (asked < least), taken * each, 0.0)
    tl.store(found + place, to_share.to(tl.float32), mask=live)


@triton.jit(do_not_specialize=["rows", "length"])
def gradient_of_one(
    shares, masks, state, grad, found, rows, length,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, SQUARED: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a sample's shares in one program."""
    sample = tl.program_id(0)
    first = sample.to(tl.int64) * length
    shares, grad, found = shares + first, grad + first, found + first
    own = state + sample * 3
    c, free, least = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    place = tl.arange(0, BLOCK)
    live = place < length
    share = tl.load(shares + place, mask=live, other=0.0)
    g = _to_reach(grad, place, live, share, c, WIDTH)
    moved = tl.sum(g * share.to(tl.float64))
    _to_shares(
        found, masks, sample, place, live, rows, share, g, moved, c, free, least,
        PADDED, GLOBAL, SQUARED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["length", "each"])
def moved_by_parts(
    shares, state, grad, sums, length, each,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the loss moves by with a sample's factor: a part of the sum."""
    part, sample = tl.program_id(0), tl.program_id(1)
    first = sample.to(tl.int64) * length
    shares, grad = shares + first, grad + first
    c = tl.load(state + sample * 3)
    moved = tl.zeros([BLOCK], tl.float64)
    for start in range(part * each, tl.minimum((part + 1) * each, length), BLOCK):
        place = start + tl.arange(0, BLOCK)
        live = place < length
        share = tl.load(shares + place, mask=live, other=0.0)
        g = _to_reach(grad, place, live, share, c, WIDTH)
        moved += g * share.to(tl.float64)
    tl.store(sums + sample * PARTS + part, tl.sum(moved))


@triton.jit(do_not_specialize=["rows", "length", "each"])
def gradient_of_many(
    shares, masks, state, grad, sums, found, rows, length, each,
    PADDED: tl.constexpr, GLOBAL: tl.constexpr, SQUARED: tl.constexpr, WIDTH: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a part of a sample's shares."""
    part, sample = tl.program_id(0), tl.program_id(1)
    first = sample.to(tl.int64) * length
    shares, grad, found = shares + first, grad + first, found + first
    own = state + sample * 3
    c, free, least = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    moved = tl.sum(tl.load(sums + sample * PARTS + tl.arange(0, PARTS)))
    for start in range(part * each, tl.minimum((part + 1) * each, length), BLOCK):
        place = start + tl.arange(0, BLOCK)
        live = place < length
        share = tl.load(shares + place, mask=live, other=0.0)
        g = _to_reach(grad, place, live, share, c, WIDTH)
        _to_shares(
            found, masks, sample, place, live, rows, share, g, moved, c, free, least,
            PADDED, GLOBAL, SQUARED,
        )  # fmt: skip
