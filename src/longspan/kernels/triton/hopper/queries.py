"""The gradients of queries, and of bells, on Hopper."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..pairs import LOG2E
from .ring import (
    LOADER_REGISTERS,
    NUMBERS,
    PADDED,
    REACH,
    ROWS,
    block_barrier,
    has_holes,
    initialise,
    keys_of_rows,
    load_keys,
    overlapped,
    places_of_rows,
    positions_of_places,
    real_keys,
    release,
    release_before,
    start_load,
    start_store,
    steps_beside,
    steps_of_rows,
    unit_of,
    wait_until_free,
    wait_until_there,
    within,
    work_after,
    work_of,
)


@gluon.jit
def _load(
    q, k, v, more_k, more_v, out, grad, qs, gs, os, ks, vs, bars, intervals, beside, heads, each, n,
    m, tiles, works, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr,
    KIND: gl.constexpr, TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """Loads what the consumer reads. The barriers: those of keys that are there and of places that
    are free, RING each; the same of queries and gradients, 2 each; and of outputs, 1 each.
    """
    work = gl.program_id(0)
    tile, b, h = work_of(work, tiles, heads)
    by_tile, by_b, by_h = work_of(gl.num_programs(0), tiles, heads)
    number = 0
    count = 0
    while work < works:
        first, steps, lower, upper = steps_of_rows(intervals, b, h, tile, n, m, KIND, BM, BN)
        turn = count % TURNS
        row = [b, h, tile * BM, 0]
        wait_until_free(bars.index(2 * RING + 5), count, 1)
        bar = bars.index(2 * RING + 4)
        mbarrier.expect(bar, BM * PD * 2)
        start_load(out, row, bar, os)
        wait_until_free(bars.index(2 * RING + 2 + turn), count, TURNS)
        bar = bars.index(2 * RING + turn)
        mbarrier.expect(bar, 2 * BM * PD * 2)
        start_load(grad, row, bar, gs.index(turn))
        start_load(q, row, bar, qs.index(turn))
        for t in range(0, steps):
            load_keys(k, v, [b, h // each, first + t * BN, 0], ks, vs, bars, number, PD, BN, RING)
            number += 1
        if BESIDE:
            for t in range(0, steps_beside(beside, BN)):
                place = [b, h // each, t * BN, 0]
                load_keys(more_k, more_v, place, ks, vs, bars, number, PD, BN, RING)
                number += 1
        count += 1
        work += gl.num_programs(0)
        tile, b, h = work_after(tile, b, h, by_tile, by_b, by_h, tiles, heads)


@gluon.jit
def _scores(
    number, query, gradient, ks, vs, bars, acc, PD: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr,
):  # fmt: skip
    """The products of a tile of keys, when those of the tile before are done with; and those of its
    values, which are under way.
    """
    slot = number % RING
    zero = gl.zeros([BM, BN], gl.float32, LS)
    wait_until_there(bars.index(slot), number, RING)
    keys = ks.index(slot).reshape([BN, PD])
    values = vs.index(slot).reshape([BN, PD])
    s = warpgroup_mma(query, keys.permute((1, 0)), zero, use_acc=False, is_async=True)
    dp = warpgroup_mma(gradient, values.permute((1, 0)), zero, use_acc=False, is_async=True)
    s, acc = warpgroup_mma_wait(1, deps=[s, acc])
    release_before(bars, number, RING)
    return s, dp, acc


@gluon.jit
def _add(
    ds, number, ks, acc, PD: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """Adds a tile's scores' gradients times its keys; the product is left running."""
    ds = gl.convert_layout(ds.to(ks.dtype), gl.DotOperandLayout(0, LO, 2))
    acc = warpgroup_mma(ds, ks.index(number % RING).reshape([BN, PD]), acc, is_async=True)
    # Waits for nothing: it names the product that is under way.
    return warpgroup_mma_wait(1, deps=[acc])


@gluon.jit
def _step(
    t, number, first, has_edge, query, gradient, ks, vs, bars, acc, to_bell, column, column_f,
    bell, i, low, width, intervals, b, m, holes, limit, mean, scale_log2, KIND: gl.constexpr,
    BELL: gl.constexpr, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr,
    LS: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """One tile of keys."""
    s, dp, acc = _scores(number, query, gradient, ks, vs, bars, acc, PD, BM, BN, RING, LS)
    start = first + t * BN
    squares = s
    if BELL:
        d = column_f[None, :] - (i - start).to(gl.float32)[:, None]
        squares = d * d
        s += bell[:, None] * squares
    p = gl.exp2(s * scale_log2 - limit[:, None])
    if has_edge:
        p = gl.where(within(column[None, :], (low - start)[:, None], width[:, None]), p, 0.0)
    if KIND == PADDED:
        if holes:
            p = gl.where(real_keys(intervals, b, start + column, m)[None, :], p, 0.0)
    dp = warpgroup_mma_wait(0, deps=[dp])
    ds = p * (dp - mean[:, None])
    if BELL:
        to_bell += gl.sum(ds * squares, 1)
    return _add(ds, number, ks, acc, PD, BN, RING, LO), to_bell


@gluon.jit
def _step_beside(
    t, number, query, gradient, ks, vs, bars, acc, to_bell, column, bell, i, low, width, own_low,
    own_width, beside, intervals, b, m, limit, mean, scale_log2, KIND: gl.constexpr,
    BELL: gl.constexpr, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr,
    LS: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """One tile of gathered keys."""
    place = t * BN + column
    key = positions_of_places(beside, b, place)
    s, dp, acc = _scores(number, query, gradient, ks, vs, bars, acc, PD, BM, BN, RING, LS)
    exists = within(place[None, :], own_low[:, None], own_width[:, None])
    if KIND == PADDED:
        exists = exists & real_keys(intervals, b, key, m)[None, :]
    inside = within(key[None, :], low[:, None], width[:, None])
    p = gl.exp2(s * scale_log2 - limit[:, None])
    p = gl.where(exists, p, 0.0)
    dp = warpgroup_mma_wait(0, deps=[dp])
    dp -= mean[:, None]
    if BELL:
        d = (key[None, :] - i[:, None]).to(gl.float32)
        squares = d * d
        counted = gl.where(inside, gl.exp2(bell[:, None] * squares * scale_log2), 0.0)
        # What the other steps took for the bell's is not.
        to_bell -= gl.sum(p * counted * dp * squares, 1)
        p *= 1.0 - counted
    else:
        p = gl.where(inside, 0.0, p)
    return _add(p * dp, number, ks, acc, PD, BN, RING, LO), to_bell


@gluon.jit
def _compute(
    dq, limits, stats, to_bells, checks, bells, qs, gs, os, ys, ks, vs, bars, intervals, beside,
    heads, n, m, tiles, works, stats_stride, scale, PD: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr, BELL: gl.constexpr,
    TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """The consumer."""
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PD, 16])
    R: gl.constexpr = gl.SliceLayout(1, LS)
    column = gl.arange(0, BN, gl.SliceLayout(0, LS))
    column_f = column.to(gl.float32)
    scale_log2 = scale * LOG2E
    work = gl.program_id(0)
    tile, b, h = work_of(work, tiles, heads)
    by_tile, by_b, by_h = work_of(gl.num_programs(0), tiles, heads)
    number = 0
    count = 0
    while work < works:
        first, steps, lower, upper = steps_of_rows(intervals, b, h, tile, n, m, KIND, BM, BN)
        row = tile * BM + gl.arange(0, BM, R)
        low, width = keys_of_rows(intervals, b, h, row, n, m, KIND)
        holes = has_holes(intervals, b, KIND)
        i = row + (m - n)
        bell = gl.zeros([BM], gl.float32, R)
        if BELL:
            place = unit_of(intervals, b, h).to(gl.int64) * intervals.stride + row
            bell = gl.load(bells + place, mask=row < n, other=0.0)
        unit = (b * heads + h).to(gl.int64)
        limit = gl.load(limits + unit * n + row, mask=row < n, other=float("-inf"))
        limit = gl.where(limit == float("-inf"), float("inf"), limit)
        turn = count % TURNS
        query = qs.index(turn).reshape([BM, PD])
        gradient = gs.index(turn).reshape([BM, PD])
        wait_until_there(bars.index(2 * RING + turn), count, TURNS)
        wait_until_there(bars.index(2 * RING + 4), count, 1)
        y = os.reshape([BM, PD]).load(LO).to(gl.float32)
        if TURNS == 2:
            release(bars.index(2 * RING + 5))
        mean = gl.convert_layout(gl.sum(y * gradient.load(LO).to(gl.float32), 1), R)
        own = stats + unit * (NUMBERS * stats_stride) + row
        gl.store(own, limit, mask=row < n)
        gl.store(own + stats_stride, mean, mask=row < n)
        if BELL:
            gl.store(own + 2 * stats_stride, bell, mask=row < n)
        if KIND == REACH:
            place = unit_of(intervals, b, h).to(gl.int64) * intervals.stride + row
            reach = gl.load(intervals.rows + place, mask=row < n, other=0.0)
            gl.store(own + 3 * stats_stride, reach, mask=row < n)
        if KIND >= ROWS:
            gl.store(own + 3 * stats_stride, low.to(gl.float32, bitcast=True), mask=row < n)
            gl.store(own + 4 * stats_stride, width.to(gl.float32, bitcast=True), mask=row < n)
        to_bell = gl.zeros([BM], gl.float32, R)
        acc = gl.zeros([BM, PD], gl.float32, LO)
        for t in range(0, steps):
            acc, to_bell = _step(
                t, number + t, first, (t < lower) | (t >= upper), query, gradient, ks, vs, bars,
                acc, to_bell, column, column_f, bell, i, low, width, intervals, b, m, holes, limit,
                mean, scale_log2, KIND, BELL, PD, BM, BN, RING, LS, LO,
            )  # fmt: skip
        number += steps
        if BESIDE:
            more = steps_beside(beside, BN)
            own_low, own_width = places_of_rows(beside, b, h, row, n)
            for t in range(0, more):
                acc, to_bell = _step_beside(
                    t, number + t, query, gradient, ks, vs, bars, acc, to_bell, column, bell, i,
                    low, width, own_low, own_width, beside, intervals, b, m, limit, mean,
                    scale_log2, KIND, BELL, PD, BM, BN, RING, LS, LO,
                )  # fmt: skip
            number += more
        release(bars.index(2 * RING + 2 + turn))
        acc = warpgroup_mma_wait(0, deps=[acc])
        if BELL:
            # bell is −1 / (2 · scale · variance).
            factor = 2.0 * scale * scale * bell * bell
            gl.store(to_bells + unit * n + row, to_bell * factor, mask=row < n)
        check = gl.convert_layout(gl.sum(acc * 0.0, 1), R)
        gl.store(checks + unit * n + row, check, mask=row < n)
        tma.store_wait(0)
        block_barrier()
        ys.reshape([BM, PD]).store((acc * scale).to(dq.dtype))
        fence_async_shared()
        block_barrier()
        start_store(dq, [b, h, tile * BM, 0], ys)
        if TURNS == 1:
            tma.store_wait(0)
            release(bars.index(2 * RING + 5))
        count += 1
        work += gl.num_programs(0)
        tile, b, h = work_after(tile, b, h, by_tile, by_b, by_h, tiles, heads)
    tma.store_wait(0)


# Lengths change from call to call: nothing is compiled for one of them.
@gluon.jit(do_not_specialize=[
    "limits", "stats", "to_bells", "checks", "bells", "heads", "each", "n", "m", "tiles",
    "works", "stats_stride", "scale",
])  # fmt: skip
def query_gradients(
    q, k, v, more_k, more_v, out, grad, dq, limits, stats, to_bells, checks, intervals, beside,
    bells, heads, each, n, m, tiles, works, stats_stride, scale, KIND: gl.constexpr,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, BELL: gl.constexpr,
    TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """dq, the gradients of bells' variances, and what the keys' kernel reads after: `stats`,
    float32 `(B·H, NUMBERS, stride)`.

    `checks`, float32 `(B, H, N)`, has NaN for a row in which a NaN or an infinity appeared.
    TURNS is how many tiles of rows may be there at once; with 1 the gradient leaves through the
    place of the output. Arguments as for `outputs`.
    """
    qs = gl.allocate_shared_memory(q.dtype, [TURNS, 1, 1, BM, PD], q.layout)
    gs = gl.allocate_shared_memory(q.dtype, [TURNS, 1, 1, BM, PD], grad.layout)
    os = gl.allocate_shared_memory(q.dtype, [1, 1, BM, PD], out.layout)
    ys = os
    if TURNS == 2:
        ys = gl.allocate_shared_memory(q.dtype, [1, 1, BM, PD], dq.layout)
    ks = gl.allocate_shared_memory(k.dtype, [RING, 1, 1, BN, PD], k.layout)
    vs = gl.allocate_shared_memory(v.dtype, [RING, 1, 1, BN, PD], v.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2 * RING + 6, 1], mbarrier.MBarrierLayout())
    initialise(bars, 2 * RING + 6)
    overlapped()
    gl.warp_specialize(
        [
            (_compute, (
                dq, limits, stats, to_bells, checks, bells, qs, gs, os, ys, ks, vs, bars, intervals,
                beside, heads, n, m, tiles, works, stats_stride, scale, PD, BM, BN, RING, KIND,
                BELL, TURNS, BESIDE,
            )),
            (_load, (
                q, k, v, more_k, more_v, out, grad, qs, gs, os, ks, vs, bars, intervals, beside,
                heads, each, n, m, tiles, works, PD, BM, BN, RING, KIND, TURNS, BESIDE,
            )),
        ],
        [1],
        [LOADER_REGISTERS],
    )  # fmt: skip
