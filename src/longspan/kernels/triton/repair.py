"""Computes again, with care, where a kernel met a NaN: 0 times NaN is NaN, so one that a row does
not see may have spoilt it.

After the kernels of this package a number for every tile says where; the kernels for Hopper leave
one for every row, or key. They leave out a bell's normalisation, which softmax takes out again, and
so must what repairs them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..problem import Problem
from .arguments import Made, Numbers, vectors
from .call import Call, fitted, numbers
from .keys import repair_key_gradients
from .outputs import repair_outputs
from .queries import repair_query_gradients
from .sources import KeyOrder, Source

__all__ = ["repair", "repair_backward", "repair_forward"]

# Tiles that a program looks after.
SPAN = 64
# Rows or keys that are computed at once.
FINE = 16

KERNELS = {
    "outputs": repair_outputs,
    "queries": repair_query_gradients,
    "keys": repair_key_gradients,
}


def repair(name: str, grid: tuple[int, int], arguments: tuple[Any, ...], made: Made) -> None:
    """Launches what repairs a kernel; grid, arguments and constants as for that one."""
    if name == "keys":
        pieces, careful = made.BN // FINE, made._replace(BN=FINE, CAREFUL=True)
    else:
        pieces, careful = made.BM // FINE, made._replace(BM=FINE, BN=FINE, CAREFUL=True)
        careful = careful._replace(KINDS=fitted(made.KINDS, FINE))
    programs = -(-grid[0] * grid[1] // SPAN)
    KERNELS[name][programs,](*arguments, grid[1], MADE=careful, PIECES=pieces, SPAN=SPAN)


def repair_forward(problem: Problem, out: Tensor, limits: Tensor) -> None:
    """Repairs the outputs, and the limits, of rows in tiles that have a NaN among the limits.

    Args:
        problem: of one walk, over all rows, and one part, both in identity order.
        out: `(B, H, N, D)`.
        limits: log-sum-exps, contiguous `(B, H, N)`, without the normalisation of bells.
    """
    call = Call(problem, reaches_where_read=True)
    (walk,) = call.walks
    grid = call.grid(walk)
    own = walk.rows, walk.parts, walk.places, grid[0]
    arguments = (call.given, vectors(out), numbers(limits), (), limits, *own)
    repair("outputs", grid, arguments, _by_row(call.made(walk, FIRST=True)))


def repair_backward(
    problem: Problem,
    out: Tensor,
    limits: Tensor,
    grad: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    means: Tensor,
    to_bells: Tensor,
    row_checks: Tensor,
    key_checks: Tensor,
) -> None:
    """Repairs the gradients of tiles that have a NaN among the checks.

    Args:
        problem, out, limits: as for `repair_forward`; repaired.
        grad: of the outputs.
        dq, dk, dv: gradients, written where they are repaired.
        means: each row's mean gradient, `(B · H, stride)` with a stride of N or more, likewise.
        to_bells: gradient `(B, H, N)` of the variance, likewise; anything where there is no bell.
        row_checks: contiguous `(B, H, N)`, or as long.
        key_checks: contiguous `(B, Hk, M)`, or as long.
    """
    wanted = frozenset((term.number, "variance") for term in problem.terms)
    call = Call(problem, wanted, reaches_where_read=True)
    (walk,) = call.walks
    grid, key_heads = call.grid(walk), problem.k.shape[1]
    of_means = Numbers(means, call.heads * means.stride(0), means.stride(0), 1)
    read = vectors(grad), numbers(limits.contiguous())
    sums = (numbers(to_bells),) if call.summed else ()
    made = _by_row(
        call.made(walk, FIRST=True, SUMS=len(sums), EXACT=problem.q.dtype == torch.float32)
    )
    to = of_means, vectors(dq), sums, (), row_checks
    own = walk.rows, walk.parts, walk.places, grid[0]
    repair("queries", grid, (call.given, vectors(out), *read, *to, *own), made)
    # Which rows a tile of keys meets is asked when it has to be repaired.
    source = Source(walk.rows, walk.parts[0], key_checks, key_checks, walk.places, grid[0])
    made = Made(**call.constants, KINDS=walk.kinds, WALKS=((0, 0, call.block, 0),))
    order = KeyOrder(key_checks, 0, call.layout.m), (source,), (), key_heads
    key_grid = -(-call.layout.m // call.block), call.batch * key_heads
    to_keys = of_means, vectors(dk), vectors(dv), key_checks
    arguments = (call.given, *read, *to_keys, *order, key_grid[0])
    repair("keys", key_grid, arguments, _by_row(made))


def _by_row(made: Made) -> Made:
    terms = tuple((kind, number, 0, place) for kind, number, _, place in made.TERMS)
    return made._replace(TERMS=terms, BY_ROW=True)
