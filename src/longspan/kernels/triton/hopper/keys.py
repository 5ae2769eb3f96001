"""The gradients of keys and values on Hopper."""

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
    BAND,
    GATHERED_NUMBERS,
    LOADER_REGISTERS,
    PADDED,
    REACH,
    ROWS,
    block_barrier,
    edges,
    initialise,
    overlapped,
    real_keys,
    release,
    release_before,
    start_load,
    start_store,
    steps_beside,
    unit_of,
    wait_until_free,
    wait_until_there,
    within,
    work_after,
    work_of,
)


@gluon.jit
def _steps_of_keys(
    intervals, columns, b, h, tile, n, m, KIND: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
):  # fmt: skip
    """The first row that a tile of keys meets, its steps, and where those without an edge lie."""
    if KIND == BAND:
        start = tile * BN - (m - n)
        end = gl.minimum(tile * BN + BN, m) - 1 - (m - n)
        # A TMA of the rows' numbers has to start at a multiple of 16 bytes.
        first = gl.minimum(gl.maximum(start - intervals.right, 0), n - 1) // 4 * 4
        last = gl.minimum(end + intervals.left, n - 1)
        steps, lower, upper = edges(first, last, end - intervals.right, start + intervals.left, BM)
        return first, steps, lower, upper
    else:
        entry = columns + (unit_of(intervals, b, h) * gl.cdiv(m, BN) + tile) * 2
        first = gl.load(entry)
        # The columns count in steps of BN.
        steps = gl.load(entry + 1) * (BN // BM)
        return first, steps, 0, 0


@gluon.jit
def _start_number(stats, vectors, bar, unit, row, slot, PLACE: gl.constexpr):
    """Starts the load of one of the rows' numbers."""
    own = vectors.index(GATHERED_NUMBERS * slot + PLACE)
    start_load(stats, [unit, PLACE, row], bar, own)


@gluon.jit
def _load(
    q, k, v, grad, stats, more_q, more_grad, more_stats, qs, gs, ks, vs, vectors, bars, intervals,
    columns, beside, heads, key_heads, each, n, m, tiles, works, PD: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr, BELL: gl.constexpr,
    TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """Loads what the consumer reads; past the end all of it is 0: no contribution. The barriers:
    those of rows that are there and of places that are free, RING each, and the same of keys, 2
    each.
    """
    OF_INTERVALS: gl.constexpr = 0 if KIND == BAND else 1 if KIND == REACH else 2
    BYTES: gl.constexpr = (2 * PD * 2 + (2 + OF_INTERVALS + (1 if BELL else 0)) * 4) * BM
    work = gl.program_id(0)
    tile, b, key_head = work_of(work, tiles, key_heads)
    by_tile, by_b, by_head = work_of(gl.num_programs(0), tiles, key_heads)
    number = 0
    count = 0
    while work < works:
        turn = count % TURNS
        wait_until_free(bars.index(2 * RING + 2 + turn), count, TURNS)
        bar = bars.index(2 * RING + turn)
        mbarrier.expect(bar, 2 * BN * PD * 2)
        start_load(k, [b, key_head, tile * BN, 0], bar, ks.index(turn))
        start_load(v, [b, key_head, tile * BN, 0], bar, vs.index(turn))
        for h in range(key_head * each, key_head * each + each):
            first, steps, lower, upper = _steps_of_keys(
                intervals, columns, b, h, tile, n, m, KIND, BM, BN
            )
            unit = b * heads + h
            for t in range(0, steps):
                slot = number % RING
                wait_until_free(bars.index(RING + slot), number, RING)
                bar = bars.index(slot)
                row = first + t * BM
                mbarrier.expect(bar, BYTES)
                start_load(q, [b, h, row, 0], bar, qs.index(slot))
                start_load(grad, [b, h, row, 0], bar, gs.index(slot))
                _start_number(stats, vectors, bar, unit, row, slot, 0)
                _start_number(stats, vectors, bar, unit, row, slot, 1)
                if BELL:
                    _start_number(stats, vectors, bar, unit, row, slot, 2)
                if KIND != BAND:
                    _start_number(stats, vectors, bar, unit, row, slot, 3)
                if KIND >= ROWS:
                    _start_number(stats, vectors, bar, unit, row, slot, 4)
                number += 1
            if BESIDE:
                for t in range(0, steps_beside(beside, BM)):
                    slot = number % RING
                    wait_until_free(bars.index(RING + slot), number, RING)
                    bar = bars.index(slot)
                    mbarrier.expect(bar, (2 * PD * 2 + GATHERED_NUMBERS * 4) * BM)
                    start_load(more_q, [b, h, t * BM, 0], bar, qs.index(slot))
                    start_load(more_grad, [b, h, t * BM, 0], bar, gs.index(slot))
                    for place in gl.static_range(GATHERED_NUMBERS):
                        _start_number(more_stats, vectors, bar, unit, t * BM, slot, place)
                    number += 1
        count += 1
        work += gl.num_programs(0)
        tile, b, key_head = work_after(tile, b, key_head, by_tile, by_b, by_head, tiles, key_heads)


@gluon.jit
def _scores(
    number, keys, values, qs, gs, vectors, bars, dk, dv, PD: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr,
):  # fmt: skip
    """The products of a tile of rows, when those of the tile before are done with; those of their
    gradients, which are under way; and the rows' log-sum-exp and mean gradients. All are `(keys,
    rows)`, so that what follows takes them from registers.
    """
    slot = number % RING
    zero = gl.zeros([BN, BM], gl.float32, LS)
    wait_until_there(bars.index(slot), number, RING)
    query = qs.index(slot).reshape([BM, PD])
    gradient = gs.index(slot).reshape([BM, PD])
    s = warpgroup_mma(keys, query.permute((1, 0)), zero, use_acc=False, is_async=True)
    dp = warpgroup_mma(values, gradient.permute((1, 0)), zero, use_acc=False, is_async=True)
    limit = _numbers(vectors, number, 0, BM, RING, LS)
    mean = _numbers(vectors, number, 1, BM, RING, LS)
    s, dv, dk = warpgroup_mma_wait(1, deps=[s, dv, dk])
    release_before(bars, number, RING)
    return s, dp, limit, mean, dk, dv


@gluon.jit
def _numbers(
    vectors, number, PLACE: gl.constexpr, BM: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr
):
    """One of the rows' numbers, `(1, BM)`."""
    return vectors.index(GATHERED_NUMBERS * (number % RING) + PLACE).reshape([1, BM]).load(LS)


@gluon.jit
def _add(
    p, dp, mean, number, qs, gs, dk, dv, PD: gl.constexpr, BM: gl.constexpr, RING: gl.constexpr,
    LO: gl.constexpr,
):  # fmt: skip
    """Adds a tile of rows; the products are left running."""
    slot = number % RING
    dp = warpgroup_mma_wait(0, deps=[dp])
    weights = gl.convert_layout(p.to(qs.dtype), gl.DotOperandLayout(0, LO, 2))
    dv = warpgroup_mma(weights, gs.index(slot).reshape([BM, PD]), dv, is_async=True)
    ds = p * (dp - mean)
    ds = gl.convert_layout(ds.to(qs.dtype), gl.DotOperandLayout(0, LO, 2))
    dk = warpgroup_mma(ds, qs.index(slot).reshape([BM, PD]), dk, is_async=True)
    # Waits for nothing: it names the products that are under way.
    dk, dv = warpgroup_mma_wait(2, deps=[dk, dv])
    return dk, dv


@gluon.jit
def _step(
    t, number, first, has_edge, keys, values, qs, gs, vectors, bars, dk, dv, column, column_f, key,
    shift, low, width, scale_log2, KIND: gl.constexpr, BELL: gl.constexpr, PD: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """One tile of rows."""
    s, dp, limit, mean, dk, dv = _scores(
        number, keys, values, qs, gs, vectors, bars, dk, dv, PD, BM, BN, RING, LS
    )
    start = first + t * BM
    if BELL or KIND == REACH:
        d = column_f[None, :] - (key - shift - start).to(gl.float32)[:, None]
    if BELL:
        s += _numbers(vectors, number, 2, BM, RING, LS) * (d * d)
    p = gl.exp2(s * scale_log2 - limit)
    if KIND == BAND:
        if has_edge:
            p = gl.where(within(column[None, :], (low - start)[:, None], width), p, 0.0)
    elif KIND == REACH:
        p = gl.where(gl.abs(d) <= _numbers(vectors, number, 3, BM, RING, LS), p, 0.0)
    else:
        lowest = _numbers(vectors, number, 3, BM, RING, LS).to(gl.int32, bitcast=True)
        most = _numbers(vectors, number, 4, BM, RING, LS).to(gl.int32, bitcast=True)
        p = gl.where(within(key[:, None], lowest, most), p, 0.0)
    return _add(p, dp, mean, number, qs, gs, dk, dv, PD, BM, RING, LO)


@gluon.jit
def _step_beside(
    number, keys, values, qs, gs, vectors, bars, dk, dv, key, scale_log2, PD: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """One tile of gathered rows: what they see less what the other steps took them to see."""
    s, dp, limit, mean, dk, dv = _scores(
        number, keys, values, qs, gs, vectors, bars, dk, dv, PD, BM, BN, RING, LS
    )
    p = gl.exp2(s * scale_log2 - limit)
    lowest = _numbers(vectors, number, 2, BM, RING, LS).to(gl.int32, bitcast=True)
    most = _numbers(vectors, number, 3, BM, RING, LS).to(gl.int32, bitcast=True)
    taken = gl.where(within(key[:, None], lowest, most), p, 0.0)
    lowest = _numbers(vectors, number, 4, BM, RING, LS).to(gl.int32, bitcast=True)
    most = _numbers(vectors, number, 5, BM, RING, LS).to(gl.int32, bitcast=True)
    p = gl.where(within(key[:, None], lowest, most), p, 0.0) - taken
    return _add(p, dp, mean, number, qs, gs, dk, dv, PD, BM, RING, LO)


@gluon.jit
def _compute(
    dk_out, dv_out, checks, qs, gs, ks, vs, vectors, ys, zs, bars, intervals, columns, beside,
    key_heads, each, n, m, tiles, works, scale, PD: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr, BELL: gl.constexpr,
    TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """The consumer."""
    LS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    LO: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PD, 16])
    R: gl.constexpr = gl.SliceLayout(1, LS)
    column = gl.arange(0, BM, gl.SliceLayout(0, LS))
    column_f = column.to(gl.float32)
    scale_log2 = scale * LOG2E
    work = gl.program_id(0)
    tile, b, key_head = work_of(work, tiles, key_heads)
    by_tile, by_b, by_head = work_of(gl.num_programs(0), tiles, key_heads)
    number = 0
    count = 0
    while work < works:
        turn = count % TURNS
        keys = ks.index(turn).reshape([BN, PD])
        values = vs.index(turn).reshape([BN, PD])
        key = tile * BN + gl.arange(0, BN, R)
        low = key - (m - n) - intervals.right
        width = intervals.left + intervals.right
        dk = gl.zeros([BN, PD], gl.float32, LO)
        dv = gl.zeros([BN, PD], gl.float32, LO)
        wait_until_there(bars.index(2 * RING + turn), count, TURNS)
        for h in range(key_head * each, key_head * each + each):
            first, steps, lower, upper = _steps_of_keys(
                intervals, columns, b, h, tile, n, m, KIND, BM, BN
            )
            for t in range(0, steps):
                dk, dv = _step(
                    t, number + t, first, (t < lower) | (t >= upper), keys, values, qs, gs,
                    vectors, bars, dk, dv, column, column_f, key, m - n, low, width, scale_log2,
                    KIND, BELL, PD, BM, BN, RING, LS, LO,
                )  # fmt: skip
            number += steps
            if BESIDE:
                more = steps_beside(beside, BM)
                for t in range(0, more):
                    dk, dv = _step_beside(
                        number + t, keys, values, qs, gs, vectors, bars, dk, dv, key, scale_log2,
                        PD, BM, BN, RING, LS, LO,
                    )  # fmt: skip
                number += more
        if TURNS == 2:
            release(bars.index(2 * RING + 2 + turn))
        dk, dv = warpgroup_mma_wait(0, deps=[dk, dv])
        if KIND == PADDED:
            real = gl.convert_layout(real_keys(intervals, b, key, m), gl.SliceLayout(1, LO))
            dk = gl.where(real[:, None], dk, 0.0)
            dv = gl.where(real[:, None], dv, 0.0)
        check = gl.convert_layout(gl.sum(dk * 0.0 + dv * 0.0, 1), R)
        unit = (b * key_heads + key_head).to(gl.int64)
        gl.store(checks + unit * m + key, check, mask=key < m)
        tma.store_wait(0)
        block_barrier()
        ys.reshape([BN, PD]).store((dk * scale).to(dk_out.dtype))
        zs.reshape([BN, PD]).store(dv.to(dv_out.dtype))
        fence_async_shared()
        block_barrier()
        start_store(dk_out, [b, key_head, tile * BN, 0], ys)
        start_store(dv_out, [b, key_head, tile * BN, 0], zs)
        if TURNS == 1:
            tma.store_wait(0)
            release(bars.index(2 * RING + 2 + turn))
        count += 1
        work += gl.num_programs(0)
        tile, b, key_head = work_after(tile, b, key_head, by_tile, by_b, by_head, tiles, key_heads)
    tma.store_wait(0)


# Lengths change from call to call: nothing is compiled for one of them.
@gluon.jit(do_not_specialize=[
    "checks", "columns", "heads", "key_heads", "each", "n", "m", "tiles", "works", "scale",
])  # fmt: skip
def key_gradients(
    q, k, v, grad, dk_out, dv_out, stats, more_q, more_grad, more_stats, checks, intervals, columns,
    beside, heads, key_heads, each, n, m, tiles, works, scale, KIND: gl.constexpr,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, BELL: gl.constexpr,
    TURNS: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """dk and dv.

    Args:
        stats: descriptor of the rows' numbers, in pieces of BM: see `query_gradients`.
        more_q, more_grad, more_stats: of gathered rows, where they are BESIDE: see `gather_rows`.
        checks: float32 `(B, Hk, M)`; NaN for a key in whose gradients one or an infinity appeared.
        columns: int32 `(units, tiles of keys, 2)`, not for a BAND: the first row that a tile of
            keys meets, and its steps.
        tiles: of keys; works: how many there are over all samples and key heads.
        TURNS: how many tiles of keys may be there at once; with 1 the gradients leave through their
            places.
    """
    ks = gl.allocate_shared_memory(k.dtype, [TURNS, 1, 1, BN, PD], k.layout)
    vs = gl.allocate_shared_memory(v.dtype, [TURNS, 1, 1, BN, PD], v.layout)
    ys = ks.index(0)
    zs = vs.index(0)
    if TURNS == 2:
        ys = gl.allocate_shared_memory(k.dtype, [1, 1, BN, PD], dk_out.layout)
        zs = gl.allocate_shared_memory(k.dtype, [1, 1, BN, PD], dv_out.layout)
    qs = gl.allocate_shared_memory(q.dtype, [RING, 1, 1, BM, PD], q.layout)
    gs = gl.allocate_shared_memory(q.dtype, [RING, 1, 1, BM, PD], grad.layout)
    vectors = gl.allocate_shared_memory(
        gl.float32, [GATHERED_NUMBERS * RING, 1, 1, BM], stats.layout
    )
    bars = gl.allocate_shared_memory(gl.int64, [2 * RING + 4, 1], mbarrier.MBarrierLayout())
    initialise(bars, 2 * RING + 4)
    overlapped()
    gl.warp_specialize(
        [
            (_compute, (
                dk_out, dv_out, checks, qs, gs, ks, vs, vectors, ys, zs, bars, intervals, columns,
                beside, key_heads, each, n, m, tiles, works, scale, PD, BM, BN, RING, KIND, BELL,
                TURNS, BESIDE,
            )),
            (_load, (
                q, k, v, grad, stats, more_q, more_grad, more_stats, qs, gs, ks, vs, vectors, bars,
                intervals, columns, beside, heads, key_heads, each, n, m, tiles, works, PD, BM, BN,
                RING, KIND, BELL, TURNS, BESIDE,
            )),
        ],
        [1],
        [LOADER_REGISTERS],
    )  # fmt: skip
