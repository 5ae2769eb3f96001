"""Global tokens beside the rows' intervals: which part of a layout is what, and gathered tiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....layout import Layout, Part, Walk
from ...problem import Problem
from ..arguments import Numbers, Vectors, vectors, walk_arguments
from ..call import Call
from ..launch import attend, differentiate, overwrite_keys, sum_keys
from ..launching import empty, spoil, start
from ..sources import shares
from .gather import Beside, gather_keys, gather_rows
from .intervals import NUMBERS, RowFacts
from .ring import GATHERED_NUMBERS

__all__ = [
    "Gathered",
    "GatheredRows",
    "Roles",
    "attend_rows",
    "differentiate_tokens",
    "gathered_keys",
    "gathered_rows",
    "keys_beside",
    "nothing",
    "numbers_of",
    "roles_of",
    "rows_beside",
]

# Gathered tokens that one program copies.
ROWS = 16
# More than a part of all tokens are not few.
LARGEST_PART = 4


class Roles(NamedTuple):
    """Parts of a layout by their numbers: of the first walk the one that has the rows' intervals,
    and the one with gathered keys; of the second, whose rows are gathered, the one that says which
    keys these see.
    """

    main: int
    keys: int | None = None
    rows: int | None = None


def roles_of(layout: Layout) -> Roles | None:
    """What each part is, if the layout is one interval a row and, beside it, global tokens."""
    walks = layout.walks
    if not 1 <= len(walks) <= 2 or layout.merged:
        return None
    # Padding takes keys away, and changes nothing of this.
    walks = tuple([walk.unpadded or walk for walk in walks])
    plan = walks[0].plan
    if "hopper roles" not in plan:
        plan["hopper roles"] = _roles(walks)
    return plan["hopper roles"]


def _roles(walks: tuple[Walk, ...]) -> Roles | None:
    first, *rest = walks
    if any(walk.heads is not None for walk in walks):
        return None
    if first.queries.index is not None or not all(map(_plain, first.parts)):
        return None
    main = [p for p, part in enumerate(first.parts) if part.keys.index is None]
    more = [p for p, part in enumerate(first.parts) if part.keys.index is not None]
    if len(main) != 1 or len(more) > 1:
        return None
    if (first.parts[main[0]].allowed is not None) != bool(more):
        return None
    if more and not _is_short(first.parts[more[0]]):
        return None
    if not rest:
        return Roles(main[0], *more)
    (apart,) = rest
    own = [p for p, part in enumerate(apart.parts) if part.keys.index is None]
    few = apart.queries.length * LARGEST_PART <= first.queries.length
    if apart.queries.index is None or not few or len(own) != 1:
        return None
    if not all(map(_plain, apart.parts)) or len(apart.parts) > 1 + len(more):
        return None
    return Roles(main[0], more[0] if more else None, own[0])


def _plain(part: Part) -> bool:
    return part.tiles is None and not part.documents and part.keys.stride == 1


def _is_short(part: Part) -> bool:
    few = part.keys.length * LARGEST_PART <= part.low.shape[2]
    return few and part.allowed is None


class Gathered(NamedTuple):
    """Gathered keys and values, `(B, Hk, length, D)`."""

    beside: Beside
    k: Tensor
    v: Tensor


class GatheredRows(NamedTuple):
    """Gathered queries and output gradients, `(B, H, length, D)`, and their numbers."""

    beside: Beside
    q: Tensor
    grad: Tensor
    numbers: Tensor


def nothing(none: Tensor) -> Beside:
    """Of a problem without global tokens; `none` is any tensor."""
    return Beside(none, 0, none, 0, 0, none, 0, 0, 0)


def keys_beside(problem: Problem, roles: Roles) -> Beside | None:
    """Global keys; None where there are none."""
    if roles.keys is None:
        return None
    q = problem.q
    part = walk_arguments(problem.open_layout.walks[0], q.shape[1], q.device).parts[roles.keys]
    return Beside(part.order, part.order_batch, *part[:6], part.length)


def rows_beside(problem: Problem, roles: Roles) -> Beside | None:
    """Global rows; None where there are none."""
    if roles.rows is None:
        return None
    q = problem.q
    walk = walk_arguments(problem.open_layout.walks[1], q.shape[1], q.device)
    return Beside(
        walk.rows.order, walk.rows.order_batch, *walk.parts[roles.rows][:6], walk.rows.length
    )


def gathered_keys(problem: Problem, roles: Roles, head: int) -> Gathered | None:
    """Global keys and values, in one launch; None where there are none."""
    beside = keys_beside(problem, roles)
    if beside is None:
        return None
    k, v = problem.k, problem.v
    batch, heads = k.shape[:2]
    length, channels = beside.length, k.shape[3]
    to_k, to_v = (empty((batch, heads, length, channels), k.dtype, k.device) for _ in range(2))
    start(
        gather_keys,
        (k.device, k.dtype, k.shape, k.stride(), v.stride(), numbers_of(beside)),
        (-(-length // ROWS), batch * heads),
        (vectors(k), vectors(v), to_k, to_v, beside, heads),
        {"D": channels, "PD": head, "ROWS": ROWS},
    )
    return Gathered(beside, to_k, to_v)


def gathered_rows(
    problem: Problem, roles: Roles, head: int, facts: RowFacts, given: Tensor, stats: Tensor
) -> GatheredRows | None:
    """Global rows, their gradients and numbers, in one launch; None where there are none."""
    beside = rows_beside(problem, roles)
    if beside is None:
        return None
    q, k = problem.q, problem.k
    batch, heads, n, channels = q.shape
    length, stride, m = beside.length, stats.shape[2], k.shape[2]
    to_q, to_grad = (empty((batch, heads, length, channels), q.dtype, q.device) for _ in range(2))
    own_stride = -(-length // 4) * 4
    shape = (batch * heads, GATHERED_NUMBERS.value, own_stride)
    numbers = empty(shape, torch.float32, q.device)
    bell = bool(problem.terms)
    start(
        gather_rows,
        (
            q.device, q.dtype, q.shape, m, q.stride(), given.stride(), bell, facts.kind,
            numbers_of(facts.intervals), numbers_of(beside),
        ),
        (-(-length // ROWS), batch * heads),
        (
            vectors(q), vectors(given), to_q, to_grad, stats, numbers, facts.intervals, beside,
            heads, n, m, stride, own_stride,
        ),
        {
            "KIND": facts.kind, "BELL": bell, "D": channels, "PD": head, "ROWS": ROWS,
            "NUMBERS": NUMBERS,
        },
    )  # fmt: skip
    return GatheredRows(beside, to_q, to_grad, numbers)


def numbers_of(values: NamedTuple) -> tuple[int, ...]:
    """What Triton may have compiled a kernel for."""
    return tuple(x for x in values if type(x) is int)


def attend_rows(problem: Problem, roles: Roles, out: Tensor, limits: Tensor) -> None:
    """Writes the outputs and limits of global rows over what is there."""
    if roles.rows is not None:
        spoil()
        call = Call(problem)
        attend(call, call.walks[1], out, limits)


def differentiate_tokens(
    problem: Problem,
    roles: Roles,
    out: Tensor,
    grad: Tensor,
    limits: Tensor,
    stats: Tensor,
    to_bells: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
) -> None:
    """Writes the gradients of global rows and keys over what is there."""
    if roles.keys is None and roles.rows is None:
        return
    spoil()
    call = Call(problem, frozenset((term.number, "variance") for term in problem.terms))
    heads, stride = limits.shape[1], stats.shape[2]
    # The second number of every row, with strides of its own.
    means = Numbers(stats[:, 1], heads * NUMBERS * stride, NUMBERS * stride, 1)
    known = Numbers(limits, *limits.stride())
    given: Vectors = vectors(grad)
    if roles.rows is not None:
        sums = [to_bells for _ in call.summed]
        differentiate(call, call.walks[1], (vectors(out), given, known), means, dq, sums)
    if roles.keys is not None:
        (share,) = shares(call.layout)[1:]
        other = sum_keys(call, share, (given, known, means))
        overwrite_keys(call, share, other, call.walks[0].parts[roles.main], dk, dv)
