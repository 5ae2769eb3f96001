"""The forward pass on Hopper."""

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
    PADDED,
    block_barrier,
    has_holes,
    initialise,
    keys_of_rows,
    load_keys,
    overlapped,
    places_of_rows,
    positions_of_places,
    real_keys,
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

# The shift of a row without keys, so far: whatever comes is far above it.
LOWEST = gl.constexpr(-3.4e38)


@gluon.jit
def _load(
    q, k, v, more_k, more_v, qs, ks, vs, bars, intervals, beside, heads, each, n, m, tiles, works,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr,
    BESIDE: gl.constexpr,
):  # fmt: skip
    """Loads what the consumer reads. The barriers: those of keys that are there and of places that
    are free, RING each, and the same of queries, 2 each.
    """
    work = gl.program_id(0)
    tile, b, h = work_of(work, tiles, heads)
    by_tile, by_b, by_h = work_of(gl.num_programs(0), tiles, heads)
    number = 0
    count = 0
    while work < works:
        first, steps, lower, upper = steps_of_rows(intervals, b, h, tile, n, m, KIND, BM, BN)
        turn = count % 2
        wait_until_free(bars.index(2 * RING + 2 + turn), count, 2)
        bar = bars.index(2 * RING + turn)
        mbarrier.expect(bar, BM * PD * 2)
        start_load(q, [b, h, tile * BM, 0], bar, qs.index(turn))
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
    number, query, ks, bars, acc, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    RING: gl.constexpr, LS: gl.constexpr,
):  # fmt: skip
    """The products of a tile of keys, when those of the tile before are done with."""
    slot = number % RING
    wait_until_there(bars.index(slot), number, RING)
    s = warpgroup_mma(
        query, ks.index(slot).reshape([BN, PD]).permute((1, 0)),
        gl.zeros([BM, BN], gl.float32, LS), use_acc=False, is_async=True,
    )  # fmt: skip
    s, acc = warpgroup_mma_wait(0, deps=[s, acc])
    release_before(bars, number, RING)
    return s, acc


@gluon.jit
def _declare():
    """What `_too_large` finds out, where both its halves see it."""
    gl.inline_asm_elementwise(
        ".reg .pred longspan_any; mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )  # fmt: skip


@gluon.jit
def _too_large(sums):
    """Whether a sum of the warp's rows is above 2^14, which float16 can hold, or NaN. Each thread
    has two of them; one warp's answer says nothing of the others, so what depends on it may use
    registers alone.
    """
    gl.inline_asm_elementwise(
        """{
        .reg .pred a;
        setp.gtu.f32 a, $2, 0f46800000;
        setp.gtu.or.f32 a, $3, 0f46800000, a;
        vote.sync.any.pred longspan_any, a, -1;
        mov.b32 $0, 0;
        mov.b32 $1, 0;
        }""", "=r,=r,f,f", [sums], dtype=gl.int32, is_pure=False, pack=2,
    )  # fmt: skip
    return gl.inline_asm_elementwise(
        "selp.b32 $0, 1, 0, longspan_any;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    ) != 0  # fmt: skip


@gluon.jit
def _sums(p, BM: gl.constexpr, BN: gl.constexpr):
    """What each of a row's four threads has of its sum."""
    return gl.sum(gl.sum(p.reshape([BM, BN // 8, 4, 2]), 3), 1)


@gluon.jit
def _largest(s, shift, scale_log2):
    return gl.maximum(shift, gl.max(s, 1) * scale_log2)


@gluon.jit
def _moved(acc, total, shift, new, LO: gl.constexpr):
    """What is summed, by another shift."""
    old = gl.exp2(shift - new)
    total *= gl.convert_layout(old, gl.SliceLayout(1, total.type.layout))[:, None]
    return acc * gl.convert_layout(old, gl.SliceLayout(1, LO))[:, None], total, new


@gluon.jit
def _add(
    s, part, number, vs, acc, shift, total, scale_log2, FIRST, BELL: gl.constexpr,
    PARTLY: gl.constexpr, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    RING: gl.constexpr, LO: gl.constexpr,
):  # fmt: skip
    """Adds a tile of keys to what is summed; PARTLY, only a part of each pair. The product with its
    values is left running while the next scores queue behind it.

    The first tile says by how much scores are shifted, and others keep to it, unless a sum says
    that they must not: nobody looks for the largest score. Under a bell it lies in a tile farther
    on, and every tile is looked at; nor would registers do.
    """
    if BELL:
        acc, total, shift = _moved(acc, total, shift, _largest(s, shift, scale_log2), LO)
    elif FIRST:
        shift = _largest(s, shift, scale_log2)
    p = gl.exp2(s * scale_log2 - shift[:, None])
    if PARTLY:
        p *= part
    sums = _sums(p, BM, BN)
    if not BELL:
        if _too_large(sums):
            acc, total, shift = _moved(acc, total, shift, _largest(s, shift, scale_log2), LO)
            p = gl.exp2(s * scale_log2 - shift[:, None])
            sums = _sums(p, BM, BN)
    total += sums
    p = gl.convert_layout(p.to(vs.dtype), gl.DotOperandLayout(0, LO, 2))
    acc = warpgroup_mma(p, vs.index(number % RING).reshape([BN, PD]), acc, is_async=True)
    # Waits for nothing: it names the product that is under way.
    acc = warpgroup_mma_wait(1, deps=[acc])
    return acc, shift, total


@gluon.jit
def _step(
    t, number, first, has_edge, query, ks, vs, bars, acc, shift, total, column, column_f, bell, i,
    low, width, intervals, b, m, holes, scale_log2, KIND: gl.constexpr, BELL: gl.constexpr,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr,
    LO: gl.constexpr,
):  # fmt: skip
    """One tile of keys."""
    s, acc = _scores(number, query, ks, bars, acc, PD, BM, BN, RING, LS)
    start = first + t * BN
    if BELL:
        d = column_f[None, :] - (i - start).to(gl.float32)[:, None]
        s += bell[:, None] * (d * d)
    if has_edge:
        exists = within(column[None, :], (low - start)[:, None], width[:, None])
        s = gl.where(exists, s, float("-inf"))
    if KIND == PADDED:
        if holes:
            s = gl.where(real_keys(intervals, b, start + column, m)[None, :], s, float("-inf"))
    return _add(
        s, s, number, vs, acc, shift, total, scale_log2, t == 0, BELL, False, PD, BM, BN, RING, LO
    )


@gluon.jit
def _step_beside(
    t, number, query, ks, vs, bars, acc, shift, total, column, bell, i, low, width, own_low,
    own_width, beside, intervals, b, m, scale_log2, KIND: gl.constexpr, BELL: gl.constexpr,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, LS: gl.constexpr,
    LO: gl.constexpr,
):  # fmt: skip
    """One tile of gathered keys."""
    place = t * BN + column
    key = positions_of_places(beside, b, place)
    s, acc = _scores(number, query, ks, bars, acc, PD, BM, BN, RING, LS)
    exists = within(place[None, :], own_low[:, None], own_width[:, None])
    inside = within(key[None, :], low[:, None], width[:, None])
    part = s
    if BELL:
        d = (key[None, :] - i[:, None]).to(gl.float32)
        part = gl.where(inside, 1.0 - gl.exp2(bell[:, None] * (d * d) * scale_log2), 1.0)
    else:
        exists = exists & (inside == 0)
    if KIND == PADDED:
        exists = exists & real_keys(intervals, b, key, m)[None, :]
    s = gl.where(exists, s, float("-inf"))
    return _add(
        s, part, number, vs, acc, shift, total, scale_log2, False, BELL, BELL, PD, BM, BN, RING, LO
    )


@gluon.jit
def _compute(
    out, limits, bells, qs, ks, vs, ys, bars, intervals, beside, heads, n, m, tiles, works, scale,
    PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr,
    BELL: gl.constexpr, BESIDE: gl.constexpr,
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
        turn = count % 2
        query = qs.index(turn).reshape([BM, PD])
        wait_until_there(bars.index(2 * RING + turn), count, 2)
        shift = gl.full([BM], LOWEST, gl.float32, R)
        total = _sums(gl.zeros([BM, BN], gl.float32, LS), BM, BN)
        acc = gl.zeros([BM, PD], gl.float32, LO)
        for t in range(0, steps):
            acc, shift, total = _step(
                t, number + t, first, (t < lower) | (t >= upper), query, ks, vs, bars, acc, shift,
                total, column, column_f, bell, i, low, width, intervals, b, m, holes, scale_log2,
                KIND, BELL, PD, BM, BN, RING, LS, LO,
            )  # fmt: skip
        number += steps
        if BESIDE:
            more = steps_beside(beside, BN)
            own_low, own_width = places_of_rows(beside, b, h, row, n)
            for t in range(0, more):
                acc, shift, total = _step_beside(
                    t, number + t, query, ks, vs, bars, acc, shift, total, column, bell, i, low,
                    width, own_low, own_width, beside, intervals, b, m, scale_log2, KIND, BELL, PD,
                    BM, BN, RING, LS, LO,
                )  # fmt: skip
            number += more
        acc = warpgroup_mma_wait(0, deps=[acc])
        total = gl.convert_layout(gl.sum(total, 1), R)
        empty = total == 0.0
        limit = gl.where(empty, float("-inf"), shift + gl.log2(total))
        limit += gl.convert_layout(gl.sum(acc * 0.0, 1), R)
        gl.store(limits + (b * heads + h).to(gl.int64) * n + row, limit, mask=row < n)
        part = 1.0 / gl.where(empty, 1.0, total)
        acc = acc * gl.convert_layout(part, gl.SliceLayout(1, LO))[:, None]
        y = ys
        tma.store_wait(0)
        block_barrier()
        y.reshape([BM, PD]).store(acc.to(out.dtype))
        fence_async_shared()
        # Every thread has its output there, and needs the queries no more.
        block_barrier()
        mbarrier.arrive(bars.index(2 * RING + 2 + turn), count=1)
        start_store(out, [b, h, tile * BM, 0], y)
        count += 1
        work += gl.num_programs(0)
        tile, b, h = work_after(tile, b, h, by_tile, by_b, by_h, tiles, heads)
    tma.store_wait(0)


# Lengths change from call to call: nothing is compiled for one of them.
@gluon.jit(do_not_specialize=[
    "limits", "bells", "heads", "each", "n", "m", "tiles", "works", "scale",
])  # fmt: skip
def outputs(
    q, k, v, more_k, more_v, out, limits, intervals, beside, bells, heads, each, n, m, tiles, works,
    scale, KIND: gl.constexpr, PD: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    RING: gl.constexpr, BELL: gl.constexpr, BESIDE: gl.constexpr,
):  # fmt: skip
    """Attention over one interval a row, and the rows' log-sum-exp.

    Args:
        q, k, v, out: descriptors of `(B, H, N, D)` in tiles of BM or BN rows.
        more_k, more_v: of gathered keys and values, where keys are BESIDE the rows' intervals.
        limits: float32 `(B, H, N)`; NaN where a NaN or an infinity appeared, which may be that of a
            key that the row does not see.
        bells: for every row what d² is multiplied by before the scale, as `Intervals.rows`.
        each: query heads to a key head.
        works: how many tiles of rows there are over all samples and heads.
    """
    qs = gl.allocate_shared_memory(q.dtype, [2, 1, 1, BM, PD], q.layout)
    ks = gl.allocate_shared_memory(k.dtype, [RING, 1, 1, BN, PD], k.layout)
    vs = gl.allocate_shared_memory(v.dtype, [RING, 1, 1, BN, PD], v.layout)
    ys = gl.allocate_shared_memory(out.dtype, [1, 1, BM, PD], out.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2 * RING + 4, 1], mbarrier.MBarrierLayout())
    initialise(bars, 2 * RING + 4)
    overlapped()
    _declare()
    gl.warp_specialize(
        [
            (_compute, (
                out, limits, bells, qs, ks, vs, ys, bars, intervals, beside, heads, n, m, tiles,
                works, scale, PD, BM, BN, RING, KIND, BELL, BESIDE,
            )),
            (_load, (
                q, k, v, more_k, more_v, qs, ks, vs, bars, intervals, beside, heads, each, n, m,
                tiles, works, PD, BM, BN, RING, KIND, BESIDE,
            )),
        ],
        [1],
        [LOADER_REGISTERS],
    )  # fmt: skip
