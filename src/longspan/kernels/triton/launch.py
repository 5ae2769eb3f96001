"""Launches the kernels: one for each walk forward, one for each walk and one for each order of keys
back; where a walk has few rows or an order few keys, in chunks that are put together after.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...fixed_order import row_sum
from ..problem import AlibiTerm, BiasTerm, Problem, limits_dtype
from . import chunks
from .arguments import (
    Made,
    Numbers,
    PartValues,
    Vectors,
    WalkArguments,
    tile_size,
    vectors,
)
from .bias_launch import BiasGradients
from .call import Call, numbers, power_of_2
from .configs import options
from .keys import join_key_gradients, key_gradients
from .launching import launch
from .outputs import join_outputs, outputs
from .parameters import Leaves
from .queries import join_query_gradients, query_gradients, sum_means
from .repair import repair
from .sources import Other, Share, Source, shares

__all__ = ["attend", "backward", "differentiate", "forward", "overwrite_keys", "sum_keys"]

# Tile bounds that a program of the keys' gradients reads at once.
MOST_SCANNED = 1024

KERNELS = {"outputs": outputs, "queries": query_gradients, "keys": key_gradients}


def _launch(name: str, grid: tuple[int, int], arguments: tuple[Any, ...], made: Made) -> None:
    """Launches a kernel, and the one that computes again, with care, where it met a NaN.

    A score and its row's log-sum-exp have to be the same numbers in every kernel: no product runs
    into a sum, as one may here and not there.
    """
    itemsize, leaves = arguments[0].q.data.element_size(), Leaves(arguments)
    more = options(name, made, itemsize)
    constants = {"MADE": made}
    launch(KERNELS[name], grid, arguments, constants, leaves, enable_fp_fusion=False, **more)
    repair(name, grid, arguments, made, leaves)


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp, times log2(e), `(B, H, N)`."""
    call = Call(problem)
    q = problem.q
    shape = (*q.shape[:3], problem.v.shape[3])
    firsts = call.firsts()
    out = q.new_empty(shape, dtype=torch.float32 if call.layout.merged else q.dtype)
    limits = q.new_empty(shape[:3], dtype=limits_dtype(q))
    if not any(firsts):
        out.zero_()
        limits.fill_(-math.inf)
    for walk, first in zip(call.walks, firsts, strict=True):
        attend(call, walk, out, limits, first=first)
    return out.to(q.dtype), limits


def attend(
    call: Call, walk: WalkArguments, out: Tensor, limits: Tensor, *, first: bool = False
) -> None:
    """Writes the outputs and the log-sum-exp of a walk's rows; the first walk writes every row."""
    tiles, units = call.grid(walk)
    count = call.chunks(walk)
    grid = tiles, units * count
    to = vectors(out), numbers(limits)
    own = walk.rows, walk.parts, walk.places
    made = call.made(walk, FIRST=first, MERGED=call.layout.merged, CHUNKS=count)
    side: Any = ()
    if count > 1:
        side = chunks.output_sums(call.problem.q, grid[1], walk.rows.length, out.shape[3])
    _launch("outputs", grid, (call.given, *to, side, call.flags(grid), *own, tiles), made)
    if count > 1:
        launch(join_outputs, (tiles, units), (call.given, *to, side, *own), {"MADE": made})


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors; arguments as for
    `kernels.torch.backward`.
    """
    call = Call(problem, wanted)
    given, limits = vectors(grad), limits.contiguous()
    dq, means, sums = _query_gradients(call, out, limits, given)
    read = given, numbers(limits), numbers(means)
    dk, dv = _key_gradients(call, read)
    found = _gradients(call, sums) | BiasGradients(call, read).of(wanted)
    return dq, dk, dv, found


def _query_gradients(
    call: Call, out: Tensor, limits: Tensor, given: Vectors
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """dq, the mean gradient of every row, and the sums for weights."""
    q = call.problem.q
    firsts = call.firsts()
    make = torch.empty if any(firsts) else torch.zeros
    dq = _like(q, torch.float32 if call.layout.merged else q.dtype)
    if not any(firsts):
        dq.zero_()
    means, *sums = (
        make(q.shape[:3], dtype=torch.float32, device=q.device) for _ in range(1 + len(call.summed))
    )
    read = vectors(out), given, numbers(limits)
    for walk, first in zip(call.walks, firsts, strict=True):
        differentiate(call, walk, read, numbers(means), dq, sums, first=first)
    return dq.to(q.dtype), means, sums


def differentiate(
    call: Call,
    walk: WalkArguments,
    read: tuple[Vectors, Vectors, Numbers],
    means: Numbers,
    dq: Tensor,
    sums: list[Tensor],
    *,
    first: bool = False,
) -> None:
    """Writes dq, the mean gradients and the sums for weights of a walk's rows; the first walk
    writes every row.

    Args:
        read: the output, its gradient, and the log-sum-exp of every row.
    """
    q, merged = call.problem.q, call.layout.merged
    out, *rest = read
    to = vectors(dq), tuple(numbers(x) for x in sums)
    exact = q.dtype == torch.float32 and not merged
    tiles, units = call.grid(walk)
    count = call.chunks(walk)
    grid = tiles, units * count
    own = walk.rows, walk.parts, walk.places
    made = call.made(walk, FIRST=first, MERGED=merged, CHUNKS=count, SUMS=len(sums), EXACT=exact)
    side: Any = ()
    if count > 1:
        side = chunks.query_sums(q, grid[1], walk.rows.length, q.shape[3], len(sums))
        if exact:
            more = options("queries", made, q.element_size())
            given = call.given, *rest, side, *own
            launch(sum_means, grid, given, {"MADE": made}, enable_fp_fusion=False, **more)
    arguments = (out, *rest, means, *to, side, call.flags(grid), *own, tiles)
    _launch("queries", grid, (call.given, *arguments), made)
    if count > 1:
        joined = call.given, *to, side, *own
        launch(join_query_gradients, (tiles, units), joined, {"MADE": made})


def _like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Memory for a gradient, which lies as what it is of, if the kernels can write that."""
    if x.stride(3) == 1:
        return torch.empty_like(x, dtype=dtype)
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def _key_gradients(call: Call, read: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """dk and dv: first what other orders of keys add, then the order that has every key."""
    k, v, layout = call.problem.k, call.problem.v, call.layout
    if not layout.walks:
        return torch.zeros_like(k), torch.zeros_like(v)
    base, *rest = shares(layout)
    others = tuple(sum_keys(call, share, read) for share in rest)
    dk, dv = _like(k, k.dtype), _like(v, v.dtype)
    _launch_keys(call, base, read, (vectors(dk), vectors(dv)), others, call.block, 1, partial=False)
    return dk, dv


def sum_keys(call: Call, share: Share, read: tuple[Any, ...]) -> Other:
    """What dk and dv of an order's keys are, in chunks that are still to be added."""
    k, v = call.problem.k, call.problem.v
    block = min(call.block, tile_size(share.order.length, share.order.batch))
    tiles, units = -(-share.order.length // block), call.batch * k.shape[1]
    rows = max(call.grid(call.walks[w])[0] for w, _ in share.sources)
    count = chunks.chunk_count(tiles * units, rows * call.each)
    dk, dv = (
        x.new_empty(
            (*x.shape[:1], x.shape[1] * count, share.order.length, x.shape[3]),
            dtype=torch.float32,
        )
        for x in (k, v)
    )
    to = vectors(dk), vectors(dv)
    _launch_keys(call, share, read, to, (), block, count, partial=True)
    assert share.slots is not None
    stride = share.slots.stride(0) if len(share.slots) > 1 else 0
    return Other(share.slots, stride, *to, count)


def overwrite_keys(
    call: Call, share: Share, other: Other, part: PartValues, dk: Tensor, dv: Tensor
) -> None:
    """Writes what an order has summed over dk and dv, where a part has its keys struck out."""
    block = min(call.block, tile_size(share.order.length, share.order.batch))
    grid = -(-share.order.length // block), call.batch * dk.shape[1]
    to = vectors(dk), vectors(dv), dk.shape[1]
    constants = {name: call.constants[name] for name in ("D", "DV", "PD", "PDV")}
    launch(
        join_key_gradients,
        grid,
        (share.order, other, part.allowed, part.allowed_batch, *to),
        {**constants, "BN": block},
    )


def _launch_keys(
    call: Call,
    share: Share,
    read: tuple[Any, ...],
    to: tuple[Vectors, Vectors],
    others: tuple[Other, ...],
    block: int,
    count: int,
    *,
    partial: bool,
) -> None:
    key_heads = call.problem.k.shape[1]
    sources, kinds, about = [], [], []
    for w, p in share.sources:
        walk = call.walks[w]
        tiles, _ = call.grid(walk)
        low, high = call.extents(walk, p)
        sources.append(Source(walk.rows, walk.parts[p], low, high, walk.places, tiles))
        kinds.append(walk.kinds[p])
        scan = min(power_of_2(tiles), MOST_SCANNED)
        about.append((int(walk.indexed), int(walk.listed), call.rows_of_tile(walk), scan))
    grid = -(-share.order.length // block), call.batch * key_heads * count
    made = Made(
        **{**call.constants, "BN": block},
        KEYS_INDEXED=share.indexed,
        KINDS=tuple(kinds),
        WALKS=tuple(about),
        CHUNKS=count,
        PARTIAL=partial,
    )
    order = (share.order, tuple(sources), others, key_heads, grid[0])
    _launch("keys", grid, (call.given, *read, *to, call.flags(grid), *order), made)


def _gradients(call: Call, sums: list[Tensor]) -> dict[tuple[int, str], Tensor]:
    found = {}
    terms = {term.number: term for term in call.problem.terms}
    for key, total in zip(call.summed, sums, strict=True):
        if isinstance(terms[key[0]], AlibiTerm):
            total = row_sum(total.double())
        elif isinstance(terms[key[0]], BiasTerm):
            total = total.double()[..., None]
        found[key] = total
    return found
