"""What the three kernels for Hopper share: tiles that arrive by TMA in a ring, and which pairs of a
tile exist.

Each program has four warps that compute, the consumer, and one that loads. It takes every
so-manyth tile of rows (or of keys), a work, and walks the tiles of keys (or of rows) that it meets,
its steps. The loader runs as far ahead as the ring has room, past the end of a work into the next
one: the consumer waits for memory only at the very start, and never issues a load.

KIND says where the rows' intervals come from:
    BAND: every row r at position i has the keys i − left … i + right
    REACH: the keys up to a row's own reach on both sides (float32; −1 for none)
    ROWS: any interval: a first key and how many follow it (int32)
    PADDED: the same, of samples in which some keys are padding: intervals begin and end within the
        keys that are real, and where padding lies between those (`padding`), their own bits count
For all but the first a table has for every tile of rows its first key, its steps, and the steps at
which the tiles without an edge begin and end.

Global tokens are BESIDE: their keys are gathered, and every tile of rows has a few more steps over
them at its end; so have tiles of keys over the gathered rows. A pair with a global token that is in
a row's interval too is met twice. The steps at the end know it, and count it then as what is
missing: nothing, or, of a bell that does not act on such pairs, what it took away.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

# A loader needs few; the consumer gets what is left.
LOADER_REGISTERS = gl.constexpr(24)

# What the keys' kernel reads for every row: log-sum-exp times log2(e), mean gradient, bell, and the
# two numbers of an interval.
NUMBERS = gl.constexpr(5)

# What it reads for every gathered row: the first two of these, the interval that the row has among
# the others, and the one that it has by itself, each by its first key and how many follow.
GATHERED_NUMBERS = gl.constexpr(6)

# Where the interval of a row without keys begins: beyond every position, and far enough from the
# largest number to add to.
NOWHERE = gl.constexpr(1 << 30)

BAND = gl.constexpr(0)
REACH = gl.constexpr(1)
ROWS = gl.constexpr(2)
PADDED = gl.constexpr(3)


class Intervals(NamedTuple):
    """Which keys the rows have. `rows` and `widths` are `(units, stride)`, `table` is
    `(units, tiles, 5)`; a unit is a sample and head, or one for all where the factors are 0.
    `real` is uint8 `(B, M)`, `padding` is int32 `(B, 3)`: the first and the last real key, and
    whether others lie between.
    """

    rows: Any
    widths: Any
    stride: int
    table: Any
    tiles: int
    per_sample: int
    per_head: int
    left: int
    right: int
    real: Any
    real_batch: int
    padding: Any


# Triton renamed these after 3.6.
block_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
start_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
start_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def overlapped():
    """Waits for the kernel before to be done, and lets the one after it take the place of programs
    that are: whatever is launched beside this one waits in turn.
    """
    gl.inline_asm_elementwise(
        "griddepcontrol.wait; griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def initialise(bars, COUNT: gl.constexpr):
    for number in gl.static_range(COUNT):
        mbarrier.init(bars.index(number), count=1)
    fence_async_shared()


@gluon.jit
def wait_until_free(bar, number, PLACES: gl.constexpr):
    """For a loader: waits until what was in the place of load `number` has been used."""
    mbarrier.wait(bar, ((number // PLACES) & 1) ^ 1)


@gluon.jit
def wait_until_there(bar, number, PLACES: gl.constexpr):
    """For a consumer: waits for load `number`."""
    mbarrier.wait(bar, (number // PLACES) & 1)


@gluon.jit
def load_keys(
    k, v, place, ks, vs, bars, number, PD: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr
):
    """For a loader: starts load `number`, of a tile of keys and of their values."""
    slot = number % RING
    wait_until_free(bars.index(RING + slot), number, RING)
    bar = bars.index(slot)
    mbarrier.expect(bar, BN * 2 * PD * 2)
    start_load(k, place, bar, ks.index(slot))
    start_load(v, place, bar, vs.index(slot))


@gluon.jit
def release(bar):
    """For a consumer: what is in a place is not needed any more."""
    block_barrier()
    mbarrier.arrive(bar, count=1)


@gluon.jit
def release_before(bars, number, RING: gl.constexpr):
    """For a consumer in step `number`, when its threads have what they need of the step before:
    gives that one's place free.
    """
    block_barrier()
    mbarrier.arrive(bars.index(RING + (number + RING - 1) % RING), count=1, pred=number > 0)


@gluon.jit
def unit_of(intervals, b, h):
    return b * intervals.per_sample + h * intervals.per_head


@gluon.jit
def edges(first, last, lower_ends, upper_starts, BN: gl.constexpr):
    """How many steps of BN lead from `first` to `last`; the first step behind every lower edge; and
    the first that is not before every upper edge.
    """
    steps = gl.maximum((last - first) // BN + 1, 1)
    lower = gl.minimum(gl.maximum((lower_ends - first + BN - 1) // BN, 0), steps)
    upper = gl.minimum(gl.maximum(upper_starts + 1 - first, 0) // BN, steps)
    return steps, lower, upper


@gluon.jit
def steps_of_rows(
    intervals, b, h, tile, n, m, KIND: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
):  # fmt: skip
    """The first key of a tile of rows, its steps, and where those without an edge lie."""
    if KIND == BAND:
        start = tile * BM + (m - n)
        end = gl.minimum(tile * BM + BM, n) - 1 + (m - n)
        first = gl.maximum(start - intervals.left, 0)
        last = gl.minimum(end + intervals.right, m - 1)
        steps, lower, upper = edges(
            first, last, gl.maximum(end - intervals.left, 0),
            gl.minimum(start + intervals.right, m - 1), BN,
        )  # fmt: skip
        return first, steps, lower, upper
    else:
        entry = intervals.table + (unit_of(intervals, b, h) * intervals.tiles + tile) * 5
        # The table counts in steps of BM.
        first = gl.load(entry)
        steps = gl.load(entry + 1) * (BM // BN)
        lower = gl.load(entry + 2) * (BM // BN)
        upper = gl.load(entry + 3) * (BM // BN)
        return first, steps, lower, upper


@gluon.jit
def work_of(number, tiles, heads):
    """A work by number: its tile, sample and head."""
    unit = number // tiles
    return number % tiles, unit // heads, unit % heads


@gluon.jit
def work_after(tile, b, h, by_tile, by_b, by_h, tiles, heads):
    """The work that is so many further on. Divisions for every one would take longer."""
    tile += by_tile
    h += by_h
    if tile >= tiles:
        tile -= tiles
        h += 1
    b += by_b
    if h >= heads:
        h -= heads
        b += 1
    return tile, b, h


@gluon.jit
def keys_of_rows(intervals, b, h, row, n, m, KIND: gl.constexpr):
    """The first key of every row, and how many follow it; a row without keys has a first one far
    off.
    """
    if KIND == BAND:
        i = row + (m - n)
        low = gl.maximum(i - intervals.left, 0)
        return low, gl.minimum(i + intervals.right, m - 1) - low
    elif KIND == REACH:
        i = row + (m - n)
        place = unit_of(intervals, b, h).to(gl.int64) * intervals.stride + row
        reach = gl.load(intervals.rows + place, mask=row < n, other=-1.0).to(gl.int32)
        low = gl.maximum(i - reach, 0)
        high = gl.minimum(i + reach, m - 1)
        return gl.where(low <= high, low, NOWHERE), gl.maximum(high - low, 0)
    else:
        place = unit_of(intervals, b, h).to(gl.int64) * intervals.stride + row
        low = gl.load(intervals.rows + place, mask=row < n, other=NOWHERE)
        return low, gl.load(intervals.widths + place, mask=row < n, other=0)


@gluon.jit
def has_holes(intervals, b, KIND: gl.constexpr):
    """Whether padding lies between a sample's real keys."""
    if KIND == PADDED:
        return gl.load(intervals.padding + b * 3 + 2) > 0
    else:
        return False


@gluon.jit
def real_keys(intervals, b, key, m):
    """Which keys are no padding; none beyond the last is."""
    place = intervals.real + b.to(gl.int64) * intervals.real_batch + key
    return gl.load(place, mask=(key >= 0) & (key < m), other=0) > 0


@gluon.jit
def within(place, low, width):
    """Whether place − low is from 0 to the width, in one comparison."""
    return (place - low).to(gl.uint32) <= gl.to_tensor(width).to(gl.uint32)


@gluon.jit
def places_of_rows(beside, b, h, row, n):
    """Of gathered keys the first place that every row sees, and how many follow it."""
    low = beside.low + (b * beside.low_batch + h * beside.low_head)
    high = beside.high + (b * beside.high_batch + h * beside.high_head)
    low = gl.load(low + row, mask=row < n, other=0)
    high = gl.load(high + row, mask=row < n, other=0) - 1
    return gl.where(low <= high, low, NOWHERE), gl.maximum(high - low, 0)


@gluon.jit
def positions_of_places(beside, b, place):
    """Where gathered tokens are; before all others, where there is none."""
    start = beside.positions + b * beside.positions_batch
    return gl.load(start + place, mask=place < beside.length, other=-NOWHERE)


@gluon.jit
def steps_beside(beside, BN: gl.constexpr):
    return (beside.length + BN - 1) // BN
