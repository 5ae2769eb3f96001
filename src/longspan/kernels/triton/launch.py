"""Launches the kernels: one for each walk forward, one for each walk and one for each order of keys
back; where a walk has few rows or an order few keys, in chunks that are put together after.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from ...fixed_order import row_sum
from ..problem import AlibiTerm, Problem
from . import chunks
from .arguments import (
    Drop,
    Numbers,
    Vectors,
    WalkArguments,
    terms_of,
    tile_size,
    vectors,
    walk_arguments,
)
from .configs import options
from .keys import extents, key_gradients, repair_key_gradients
from .outputs import join_outputs, outputs, repair_outputs
from .pairs import FINE, Given, Made
from .queries import (
    join_query_gradients,
    query_gradients,
    repair_query_gradients,
    sum_means,
)
from .sources import Other, Share, Source, shares

__all__ = ["backward", "forward"]

# Tile bounds that a program of the keys' gradients reads at once.
MOST_SCANNED = 1024
# Tiles that a program of a repair looks after.
REPAIRED = 64

KERNELS = {
    "outputs": (outputs, repair_outputs),
    "queries": (query_gradients, repair_query_gradients),
    "keys": (key_gradients, repair_key_gradients),
}


class _Call:
    """What all launches of one call share."""

    def __init__(self, problem: Problem, wanted: frozenset[tuple[int, str]] = frozenset()) -> None:
        q, k, v = problem.q, problem.k, problem.v
        self.problem = problem
        self.batch, self.heads = q.shape[:2]
        self.q, self.k, self.v = vectors(q), vectors(k), vectors(v)
        self.terms, kinds, self.summed = terms_of(problem, wanted)
        seed = q if problem.seed is None else problem.seed
        least = int(problem.dropout * 2**32)
        self.drop = Drop(seed, least, 1.0 / (1.0 - problem.dropout))
        self.walks = [walk_arguments(w, self.heads, q.device) for w in problem.layout.walks]
        self.block = _block(q)
        self.constants: dict[str, Any] = {
            "D": q.shape[3],
            "DV": v.shape[3],
            "PD": max(16, triton.next_power_of_2(q.shape[3])),
            "PDV": max(16, triton.next_power_of_2(v.shape[3])),
            "BM": self.block,
            "BN": self.block,
            "TERMS": kinds,
            "REACHES": (),
            "DROPOUT": problem.dropout > 0,
            "FACTORS": any(kind[0] == 2 for kind in kinds),
            "PRECISION": _precision(q),
        }
        self.each = self.heads // k.shape[1]
        self.shift = problem.layout.m - problem.layout.n
        self.given = Given(
            self.q,
            self.k,
            self.v,
            self.terms,
            (),
            self.drop,
            self.shift,
            problem.scale,
            self.each,
        )

    def rows_of_tile(self, walk: WalkArguments) -> int:
        return min(self.block, tile_size(walk.rows.length)) if walk.indexed else self.block

    def grid(self, walk: WalkArguments) -> tuple[int, int]:
        return triton.cdiv(walk.rows.length, self.rows_of_tile(walk)), self.batch * walk.places

    def of_walk(self, walk: WalkArguments) -> dict[str, Any]:
        return {"INDEXED": walk.indexed, "LISTED": walk.listed}

    def made(self, walk: WalkArguments, **more: Any) -> Made:
        """The constants of kernels for a walk."""
        own = {"BM": self.rows_of_tile(walk), **self.of_walk(walk)}
        own |= {"KINDS": _fitted(walk.kinds, self.block), "PLAIN": _plain(walk.kinds)}
        return Made(**{**self.constants, **own, **more})

    def chunks(self, walk: WalkArguments) -> int:
        """Chunks of the keys of a walk; of one that gathers few rows several."""
        if not walk.indexed or walk.rows.length >= self.problem.layout.n:
            return 1
        tiles, units = self.grid(walk)
        longest = max(part.length for part in walk.parts)
        return chunks.chunk_count(tiles * units, triton.cdiv(longest, self.block))

    def firsts(self) -> list[bool]:
        """Which walks write every row of their heads before any other does; together they must
        write every row of every head, or none is first.
        """
        found, seen, written = [], set[int](), set[int]()
        for own, walk in zip(self.problem.layout.walks, self.walks, strict=True):
            heads = set(range(self.heads) if own.heads is None else own.heads)
            first = walk.rows.length == self.problem.layout.n and not heads & seen
            seen |= heads
            written |= heads if first else set()
            found.append(first)
        whole = len(written) == self.heads and not self.problem.layout.merged
        return [first and whole for first in found]

    def flags(self, grid: tuple[int, int]) -> Tensor:
        """A number for every program, which says whether it met a NaN."""
        return torch.empty(grid[0] * grid[1], dtype=torch.int32, device=self.problem.q.device)


def _launch(name: str, grid: tuple[int, int], arguments: tuple[Any, ...], made: Made) -> None:
    """Launches a kernel, and the one that computes again, with care, where it met a NaN."""
    kernel, repair = KERNELS[name]
    itemsize = arguments[0].q.data.element_size()
    kernel[grid](*arguments, MADE=made, **options(name, made, itemsize))
    programs = (triton.cdiv(grid[0] * grid[1], REPAIRED),)
    fine = FINE.value
    if name == "keys":
        pieces, careful = made.BN // fine, made._replace(BN=fine, CAREFUL=True)
    else:
        pieces, careful = made.BM // fine, made._replace(BM=fine, BN=fine, CAREFUL=True)
        careful = careful._replace(KINDS=_fitted(made.KINDS, fine))
    repair[programs](*arguments, grid[1], MADE=careful, PIECES=pieces, SPAN=REPAIRED)


def _block(q: Tensor) -> int:
    """Rows and keys of a tile; whole ones make up the tiles of a list."""
    # Products in true float32 are unrolled, not given to the tensor cores: larger ones take the
    # compiler minutes.
    unrolled = q.dtype == torch.float32 and q.device.type == "cuda" and _precision(q) == "ieee"
    return 32 if unrolled else 64


def _precision(q: Tensor) -> str:
    if q.dtype != torch.float32 or q.device.type != "cuda":
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _plain(kinds: tuple[tuple[int, ...], ...]) -> tuple[bool, ...]:
    """Parts whose inner tiles need no mask but that of keys."""
    return tuple(not (kind[0] or kind[2] or kind[3]) for kind in kinds)


def _fitted(kinds: tuple[tuple[int, ...], ...], most: int) -> tuple[tuple[int, ...], ...]:
    """Parts with so many keys in a tile at most."""
    return tuple((*kind[:5], min(kind[5], most)) for kind in kinds)


def _numbers(x: Tensor) -> Numbers:
    return Numbers(x, x.stride(0), x.stride(1), x.stride(2))


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp `(B, H, N)`."""
    call = _Call(problem)
    q = problem.q
    merged = problem.layout.merged
    shape = (*q.shape[:3], problem.v.shape[3])
    firsts = call.firsts()
    if any(firsts):
        out, limits = q.new_empty(shape), q.new_empty(shape[:3], dtype=torch.float64)
    else:
        out = q.new_zeros(shape, dtype=torch.float32 if merged else q.dtype)
        limits = q.new_full(shape[:3], -math.inf, dtype=torch.float64)
    to = vectors(out), _numbers(limits)
    for walk, first in zip(call.walks, firsts, strict=True):
        tiles, units = call.grid(walk)
        count = call.chunks(walk)
        grid = tiles, units * count
        own = walk.rows, walk.parts, walk.places
        made = call.made(walk, FIRST=first, MERGED=merged, CHUNKS=count)
        if count == 1:
            _launch("outputs", grid, (call.given, *to, (), call.flags(grid), *own, tiles), made)
            continue
        side = chunks.output_sums(q, grid[1], walk.rows.length, shape[3])
        _launch("outputs", grid, (call.given, *to, side, call.flags(grid), *own, tiles), made)
        join_outputs[tiles, units](call.given, *to, side, *own, MADE=made)
    return out.to(q.dtype), limits


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors; arguments as for
    `kernels.torch.backward`.
    """
    call = _Call(problem, wanted)
    given, limits = vectors(grad), limits.contiguous()
    dq, means, sums = _query_gradients(call, out, limits, given)
    dk, dv = _key_gradients(call, limits, given, means)
    return dq, dk, dv, _gradients(problem, call, sums)


def _query_gradients(
    call: _Call, out: Tensor, limits: Tensor, given: Vectors
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """dq, the mean gradient of every row, and the sums for weights."""
    q, merged = call.problem.q, call.problem.layout.merged
    firsts = call.firsts()
    make = torch.empty if any(firsts) else torch.zeros
    dq = make(q.shape, dtype=torch.float32 if merged else q.dtype, device=q.device)
    means, *sums = (
        make(q.shape[:3], dtype=torch.float32, device=q.device) for _ in range(1 + len(call.summed))
    )
    to = vectors(dq), tuple(_numbers(x) for x in sums)
    rest = given, _numbers(limits)
    exact = q.dtype == torch.float32 and not merged
    for walk, first in zip(call.walks, firsts, strict=True):
        tiles, units = call.grid(walk)
        count = call.chunks(walk)
        grid = tiles, units * count
        own = walk.rows, walk.parts, walk.places
        made = call.made(
            walk, FIRST=first, MERGED=merged, CHUNKS=count, SUMS=len(sums), EXACT=exact
        )
        side: Any = ()
        if count > 1:
            side = chunks.query_sums(q, grid[1], walk.rows.length, q.shape[3], len(sums))
            if exact:
                more = options("queries", made, q.element_size())
                sum_means[grid](call.given, *rest, side, *own, MADE=made, **more)
        flags = call.flags(grid)
        arguments = (vectors(out), *rest, _numbers(means), *to, side, flags, *own, tiles)
        _launch("queries", grid, (call.given, *arguments), made)
        if count > 1:
            join_query_gradients[tiles, units](call.given, *to, side, *own, MADE=made)
    return dq.to(q.dtype), means, sums


def _key_gradients(
    call: _Call, limits: Tensor, given: Vectors, means: Tensor
) -> tuple[Tensor, Tensor]:
    """dk and dv: first what other orders of keys add, then the order that has every key."""
    k, v, layout = call.problem.k, call.problem.v, call.problem.layout
    if not layout.walks:
        return torch.zeros_like(k), torch.zeros_like(v)
    base, *rest = shares(layout)
    read = given, _numbers(limits), _numbers(means)
    others = []
    for share in rest:
        block = min(call.block, tile_size(share.order.length))
        tiles, units = triton.cdiv(share.order.length, block), call.batch * k.shape[1]
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
        others.append(Other(share.slots, stride, *to, count))
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    to = vectors(dk), vectors(dv)
    _launch_keys(call, base, read, to, tuple(others), call.block, 1, partial=False)
    return dk, dv


def _launch_keys(
    call: _Call,
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
        low, high = _extents(call, w, p)
        sources.append(Source(walk.rows, walk.parts[p], low, high, walk.places, tiles))
        kinds.append(walk.kinds[p])
        scan = min(triton.next_power_of_2(tiles), MOST_SCANNED)
        about.append((int(walk.indexed), int(walk.listed), call.rows_of_tile(walk), scan))
    grid = triton.cdiv(share.order.length, block), call.batch * key_heads * count
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


def _extents(call: _Call, w: int, p: int) -> tuple[Tensor, Tensor]:
    """For every tile of rows the keys that it meets, from the last time where the layout is the
    same; not needed for a list of tiles.
    """
    walk, plan = call.walks[w], call.problem.layout.walks[w].plan
    grid, device = call.grid(walk), call.problem.q.device
    known = "triton extents", p, grid
    if known in plan:
        found: tuple[Tensor, Tensor] = plan[known]
        return found
    low, high = (torch.empty(grid[::-1], dtype=torch.int32, device=device) for _ in range(2))
    if not walk.kinds[p][3]:
        extents[grid](
            walk.rows,
            walk.parts[p],
            (),
            low,
            high,
            call.shift,
            walk.places,
            BM=call.rows_of_tile(walk),
            **call.of_walk(walk),
            KINDS=(walk.kinds[p],),
            REACHES=(),
        )
    if not call.constants["REACHES"]:
        plan[known] = low, high
    return low, high


def _gradients(problem: Problem, call: _Call, sums: list[Tensor]) -> dict[tuple[int, str], Tensor]:
    found = {}
    terms = {term.number: term for term in problem.terms}
    for key, total in zip(call.summed, sums, strict=True):
        alibi = isinstance(terms[key[0]], AlibiTerm)
        found[key] = row_sum(total.double()) if alibi else total
    return found
