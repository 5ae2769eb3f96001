"""Launches the kernels: one for each walk forward, one for each walk and one for each part back."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...fixed_order import row_sum
from ..problem import AlibiTerm, BiasTerm, Problem, limits_dtype
from .arguments import (
    Drop,
    Numbers,
    WalkArguments,
    terms_of,
    vectors,
    walk_arguments,
)
from .bias_launch import BiasGradients
from .configs import options
from .keys import extents, key_gradients, repair_key_gradients
from .outputs import outputs, repair_outputs
from .queries import query_gradients, repair_query_gradients
from .reach import reaches_of

__all__ = ["backward", "forward"]

# Tile bounds that a program of the keys' gradients reads at once.
MOST_SCANNED = 1024
# Tiles that a program of a repair looks after.
CHUNK = 64

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
        # Reaches are applied in the kernels: a static pattern's layout is that of every call.
        layout = problem.open_layout
        self.merged = layout.merged
        self.walks = [walk_arguments(w, self.heads, q.device) for w in layout.walks]
        cutting = problem.reaches if self.walks else ()
        self.reaches = reaches_of(cutting, q.device)
        self.block = _block(q)
        self.constants: dict[str, Any] = {
            "D": q.shape[3],
            "DV": v.shape[3],
            "PD": max(16, _power_of_2(q.shape[3])),
            "PDV": max(16, _power_of_2(v.shape[3])),
            "BM": self.block,
            "BN": self.block,
            "TERMS": kinds,
            "REACHES": tuple(reach.number for reach in cutting),
            "DROPOUT": problem.dropout > 0,
            "FACTORS": any(kind[0] == 2 for kind in kinds),
            "PRECISION": _precision(q),
        }
        self.each = self.heads // k.shape[1]
        self.shift = layout.m - layout.n

    def grid(self, walk: WalkArguments) -> tuple[int, int]:
        return -(-walk.rows.length // self.block), self.batch * walk.places

    def of_walk(self, walk: WalkArguments) -> dict[str, Any]:
        return {"INDEXED": walk.indexed, "LISTED": walk.listed}

    def flags(self, grid: tuple[int, int]) -> Tensor:
        """A number for every program, which says whether it met a NaN."""
        return torch.empty(grid[0] * grid[1], dtype=torch.int32, device=self.problem.q.device)


def _launch(name: str, grid: tuple[int, int], arguments: tuple[Any, ...], **constants: Any) -> None:
    """Launches a kernel, and the one that computes again, with care, where it met a NaN."""
    kernel, repair = KERNELS[name]
    itemsize = arguments[0].data.element_size()
    kernel[grid](*arguments, **constants, **options(name, constants, itemsize))
    programs = (-(-grid[0] * grid[1] // CHUNK),)
    repair[programs](*arguments, grid[1], **constants, CHUNK=CHUNK)


def _power_of_2(count: int) -> int:
    """The first power of two that is not below a count; Triton's own takes microseconds."""
    return 1 << (count - 1).bit_length()


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
    """Parts whose inner tiles need no mask."""
    return tuple(not (kind[0] or kind[1] or kind[2] or kind[3]) for kind in kinds)


def _numbers(x: Tensor) -> Numbers:
    return Numbers(x, x.stride(0), x.stride(1), x.stride(2))


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp `(B, H, N)`."""
    call = _Call(problem)
    q = problem.q
    merged = call.merged
    shape = (*q.shape[:3], problem.v.shape[3])
    whole = bool(call.walks) and _covers_rows(call.walks[0], problem)
    out = q.new_empty(shape, dtype=torch.float32 if merged else q.dtype)
    limits = q.new_empty(shape[:3], dtype=limits_dtype(q))
    if merged or not whole:
        out.zero_()
        limits.fill_(-math.inf)
    for number, walk in enumerate(call.walks):
        grid = call.grid(walk)
        _launch(
            "outputs",
            grid,
            (
                call.q,
                call.k,
                call.v,
                vectors(out),
                _numbers(limits),
                call.flags(grid),
                walk.rows,
                walk.parts,
                call.terms,
                call.reaches,
                call.drop,
                call.shift,
                walk.places,
                problem.scale,
                call.each,
                grid[0],
            ),
            **call.constants,
            **call.of_walk(walk),
            KINDS=walk.kinds,
            PLAIN=_plain(walk.kinds),
            FIRST=number == 0 and whole,
            MERGED=merged,
        )
    return out.to(q.dtype), limits


def _covers_rows(walk: WalkArguments, problem: Problem) -> bool:
    return not walk.listed and walk.rows.length == problem.q.shape[2]


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors; arguments as for
    `kernels.torch.backward`.
    """
    call = _Call(problem, wanted)
    q, k, v = problem.q, problem.k, problem.v
    merged, walks = call.merged, call.walks
    whole = bool(walks) and _covers_rows(walks[0], problem) and not merged
    dq = (torch.empty_like if whole else torch.zeros_like)(
        q, dtype=torch.float32 if merged else q.dtype, memory_format=torch.contiguous_format
    )
    make = torch.empty if whole else torch.zeros
    means, *sums = (
        make(q.shape[:3], dtype=torch.float32, device=q.device) for _ in range(1 + len(call.summed))
    )
    alone = len(walks) == 1 and len(walks[0].parts) == 1 and not walks[0].listed
    alone = alone and walks[0].parts[0].length == k.shape[2]
    dk, dv = (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if alone
        else x.new_zeros(x.shape, dtype=torch.float32)
        for x in (k, v)
    )
    given, limits = vectors(grad), limits.contiguous()
    common = (call.drop, call.shift)
    for number, walk in enumerate(walks):
        grid = call.grid(walk)
        _launch(
            "queries",
            grid,
            (
                call.q,
                call.k,
                call.v,
                vectors(out),
                given,
                _numbers(limits),
                _numbers(means),
                vectors(dq),
                tuple(_numbers(x) for x in sums),
                call.flags(grid),
                walk.rows,
                walk.parts,
                call.terms,
                call.reaches,
                *common,
                walk.places,
                problem.scale,
                call.each,
                grid[0],
            ),
            **call.constants,
            **call.of_walk(walk),
            KINDS=walk.kinds,
            PLAIN=_plain(walk.kinds),
            SUMS=len(sums),
            FIRST=number == 0 and whole,
            MERGED=merged,
            EXACT=q.dtype == torch.float32 and not merged,
        )
    for walk in walks:
        for number, (part, kind) in enumerate(zip(walk.parts, walk.kinds, strict=True)):
            tiles, _ = call.grid(walk)
            low, high = _extents(call, walk, number)
            grid = -(-part.length // call.block), call.batch * k.shape[1]
            _launch(
                "keys",
                grid,
                (
                    call.q,
                    call.k,
                    call.v,
                    given,
                    _numbers(limits),
                    _numbers(means),
                    vectors(dk),
                    vectors(dv),
                    low,
                    high,
                    call.flags(grid),
                    walk.rows,
                    part,
                    call.terms,
                    call.reaches,
                    *common,
                    walk.places,
                    k.shape[1],
                    problem.scale,
                    call.each,
                    tiles,
                    walk.places * tiles,
                    tiles,
                    grid[0],
                ),
                **call.constants,
                **call.of_walk(walk),
                KINDS=(kind,),
                SCAN=min(_power_of_2(tiles), MOST_SCANNED),
                ADD=not alone,
            )
    biases = BiasGradients(
        problem,
        walks,
        call.constants,
        (call.q, call.k, call.v, given, _numbers(limits), _numbers(means)),
        (call.terms, call.reaches, *common),
        partial(_extents, call),
    )
    found = _gradients(problem, call, sums) | biases.of(wanted)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), found


def _extents(call: _Call, walk: WalkArguments, number: int) -> tuple[Tensor, Tensor]:
    """For every tile of rows the keys that it meets in a part, from the last time where no reach
    cuts it.
    """
    cut = any(walk.kinds[number][4] >> weight & 1 for weight in call.constants["REACHES"])
    key = (number, call.block, call.batch)
    known: tuple[Tensor, Tensor] | None = None if cut else walk.kept.get(key)
    if known is None:
        known = _new_extents(call, walk, number)
        if not cut and not _captured(call.problem.q.device):
            walk.kept[key] = known
    return known


def _captured(device: torch.device) -> bool:
    """Does a graph record what is launched now? It computes when it is replayed, not before."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _new_extents(call: _Call, walk: WalkArguments, number: int) -> tuple[Tensor, Tensor]:
    grid, device = call.grid(walk), call.problem.q.device
    kind = walk.kinds[number]
    low, high = (torch.empty(grid[::-1], dtype=torch.int32, device=device) for _ in range(2))
    # A list of tiles needs none.
    if not kind[3]:
        extents[grid](
            walk.rows,
            walk.parts[number],
            call.reaches,
            low,
            high,
            call.shift,
            walk.places,
            BM=call.block,
            **call.of_walk(walk),
            KINDS=(kind,),
            REACHES=call.constants["REACHES"],
        )
    return low, high


def _gradients(problem: Problem, call: _Call, sums: list[Tensor]) -> dict[tuple[int, str], Tensor]:
    found = {}
    terms = {term.number: term for term in problem.terms}
    for key, total in zip(call.summed, sums, strict=True):
        if isinstance(terms[key[0]], AlibiTerm):
            total = row_sum(total.double())
        elif isinstance(terms[key[0]], BiasTerm):
            total = total.double()[..., None]
        found[key] = total
    return found
