"""Launches the kernels for Hopper: for problems in half precision whose rows have one interval."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ....layout import Walk
from ...problem import BellReach, BellTerm, Problem, SameReach
from ..arguments import captured, vectors, walk_arguments
from ..configs import HopperOptions, hopper_options
from ..launching import empty, empty_like, spoil, start, unrecorded
from . import repair
from .beside import (
    Gathered,
    GatheredRows,
    Roles,
    attend_rows,
    differentiate_tokens,
    gathered_keys,
    gathered_rows,
    nothing,
    numbers_of,
    roles_of,
)
from .descriptors import numbers_tiles, padded_head, tiles_of
from .gather import Beside
from .intervals import (
    BLOCK,
    NUMBERS,
    Padding,
    RowFacts,
    band_facts,
    facts_of,
    padding_of,
    with_columns,
)
from .keys import key_gradients
from .outputs import outputs
from .queries import query_gradients
from .repair import repair_gradients, repair_outputs

__all__ = ["backward", "forward", "takes"]

LARGEST_HEAD = 128
SCAN = repair.SCAN.value


def takes(problem: Problem) -> bool:
    """Whether the kernels here compute the problem."""
    q, k, v = problem.q, problem.k, problem.v
    if q.dtype not in (torch.bfloat16, torch.float16):
        return False
    head = q.shape[3]
    if head != v.shape[3] or head % 8 or not 16 <= head <= LARGEST_HEAD:
        return False
    if problem.dropout or problem.scale <= 0 or not all(_by_tma(x) for x in (q, k, v)):
        return False
    if len(problem.terms) > 1 or len(problem.reaches) > 1:
        return False
    for term in problem.terms:
        # Its normalisation is one number a row, which softmax takes out again.
        if not isinstance(term, BellTerm) or term.form != "bias":
            return False
    if any(not isinstance(reach, (BellReach, SameReach)) for reach in problem.reaches):
        return False
    roles = roles_of(problem.open_layout)
    if roles is None or not _weights_fit(problem, roles):
        return False
    own_keys = problem.open_layout.walks[0].padding is None and q.shape[2] <= k.shape[2]
    return not problem.terms or _cut(problem) or own_keys


def _cut(problem: Problem) -> bool:
    """Whether pairs far out on a bell do not exist. Where a row has no key of its own, all the
    others may be that, and what float32 keeps of their scores is not the same in two kernels.
    """
    return any(isinstance(reach, BellReach) for reach in problem.reaches)


def _weights_fit(problem: Problem, roles: Roles) -> bool:
    """Whether every weight acts on the rows' intervals, and none on pairs with global tokens."""
    first, *rest = problem.open_layout.walks
    numbers = {term.number for term in problem.terms}
    numbers |= {reach.number for reach in problem.reaches}
    beside = [part for walk in rest for part in walk.parts]
    if roles.keys is not None:
        beside.append(first.parts[roles.keys])
    return all(
        first.parts[roles.main].active >> number & 1
        and not any(part.active >> number & 1 for part in beside)
        for number in numbers
    )


def _by_tma(x: Tensor) -> bool:
    """Whether a tensor can be read tile by tile: rows of 16 bytes, at multiples of them, none of
    them twice.
    """
    if x.stride(3) != 1 or x.data_ptr() % 16:
        return False
    units, size = 16 // x.element_size(), x.shape
    return all(size[d] == 1 or (x.stride(d) > 0 and x.stride(d) % units == 0) for d in range(3))


def _readable(x: Tensor) -> Tensor:
    if _by_tma(x):
        return x
    spoil()
    return x.clone(memory_format=torch.contiguous_format)


def _facts(problem: Problem, part: int, columns: bool, none: Tensor) -> RowFacts:
    """What is known about the rows, from the last time where nothing in it can change; `none`
    stands for what is not needed.
    """
    walk = problem.open_layout.walks[0]
    band = walk.parts[part].band
    if band is not None:
        for reach in problem.reaches:
            if isinstance(reach, SameReach):
                band = min(band[0], reach.tokens), min(band[1], reach.tokens)
    learned = bool(problem.terms)
    if band is not None and not learned and walk.padding is None:
        return band_facts(band, none)
    key = ("hopper", columns, problem.q.shape[0])
    if learned or captured(problem.q.device):
        return _new_facts(problem, part, band, columns)
    known: RowFacts | None = walk.plan.get(key)
    if known is None:
        with unrecorded():
            known = walk.plan[key] = _new_facts(problem, part, band, columns)
    return known


def _new_facts(
    problem: Problem, part: int, band: tuple[int, int] | None, columns: bool
) -> RowFacts:
    walk = problem.open_layout.walks[0]
    arguments = walk_arguments(walk, problem.q.shape[1], problem.q.device)
    found = facts_of(problem, arguments.parts[part], band, _padding(problem, walk))
    return with_columns(found, problem.k.shape[2]) if columns else found


def _padding(problem: Problem, walk: Walk) -> Padding | None:
    """What is known about padding, from the last time where it is the same."""
    if walk.padding is None:
        return None
    if captured(problem.q.device):
        return padding_of(walk.padding)
    known: Padding | None = walk.plan.get("hopper padding")
    if known is None:
        with unrecorded():
            known = walk.plan["hopper padding"] = padding_of(walk.padding)
    return known


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class _Launcher:
    """Launches the kernels of one call."""

    def __init__(self, problem: Problem, roles: Roles, facts: RowFacts, *more: Tensor) -> None:
        q, k, v = problem.q, problem.k, problem.v
        strides = tuple(x.stride() for x in (q, k, v, *more))
        numbers = numbers_of(facts.intervals)
        self.key = (q.device, q.dtype, q.shape, k.shape, strides, facts.kind, numbers, roles)
        self.processors = _processors(q.device)
        self.head, self.bell = padded_head(q.shape[3]), bool(problem.terms)
        self.constants = {"KIND": facts.kind, "BELL": self.bell, "PD": self.head}

    def options(self, name: str) -> HopperOptions:
        return hopper_options(name, self.head)

    def persistent(
        self, kernel: Any, options: HopperOptions, works: int, beside: Beside,
        arguments: tuple[Any, ...], **constants: Any,
    ) -> None:  # fmt: skip
        """Launches a kernel whose programs share its works among them."""
        constants["RING"] = options.ring
        constants["BESIDE"] = beside.length > 0
        programs = min(works, options.programs * self.processors)
        more = {"num_warps": 4, "maxnreg": options.registers}
        self.overlapping(kernel, programs, options, (beside,), arguments, constants, **more)

    def overlapping(
        self, kernel: Any, programs: int, options: HopperOptions | None,
        beside: tuple[Beside, ...], arguments: tuple[Any, ...], constants: dict[str, Any],
        **more: int,
    ) -> None:  # fmt: skip
        """Launches a kernel that waits by itself for the one before it, so that its programs can
        be there already when that one ends.
        """
        key = (self.bell, options, *(numbers_of(x) for x in beside), *self.key)
        every = self.constants | constants
        start(kernel, key, (programs, 1), arguments, every, launch_pdl=True, **more)


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention, and every row's log-sum-exp, times log2(e), float32 `(B, H, N)`."""
    q, k, v = problem.q, problem.k, problem.v
    batch, heads, n, channels = q.shape
    m, each = k.shape[2], heads // k.shape[1]
    out = empty(q.shape, q.dtype, q.device)
    limits = empty(q.shape[:3], torch.float32, q.device)
    roles = roles_of(problem.open_layout)
    assert roles is not None
    facts = _facts(problem, roles.main, False, limits)
    launcher = _Launcher(problem, roles, facts)
    keys = gathered_keys(problem, roles, launcher.head) or Gathered(nothing(limits), k, v)
    tiles = -(-n // BLOCK)
    works = batch * heads * tiles
    options = launcher.options("outputs")
    launcher.persistent(
        outputs, options, works, keys.beside,
        (
            tiles_of(q, BLOCK), tiles_of(k, options.step), tiles_of(v, options.step),
            tiles_of(keys.k, options.step), tiles_of(keys.v, options.step), tiles_of(out, BLOCK),
            limits, facts.intervals, keys.beside, facts.bells, heads, each, n, m, tiles, works,
            problem.scale,
        ),
        BM=BLOCK, BN=options.step,
    )  # fmt: skip
    rows = batch * heads * n
    launcher.overlapping(
        repair_outputs, -(-rows // SCAN), None, (keys.beside,),
        (
            vectors(q), vectors(k), vectors(v), vectors(out), limits, facts.intervals, keys.beside,
            facts.bells, heads, each, n, m, rows, problem.scale,
        ),
        {"D": channels, "BESIDE": keys.beside.length > 0, "OVERLAPS": True},
    )  # fmt: skip
    attend_rows(problem, roles, out, limits)
    return out, limits


def backward(problem: Problem, out: Tensor, limits: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    """Gradients of q, k and v, and of the bell's variance, if there is one."""
    q, k, v = problem.q, problem.k, problem.v
    batch, heads, n, channels = q.shape
    key_heads, m = k.shape[1], k.shape[2]
    dq, dk, dv = (empty_like(x) for x in (q, k, v))
    # A unit's rows start at a multiple of 16 bytes, as their TMA wants it.
    stride = -(-n // 4) * 4
    stats = empty((batch * heads, NUMBERS, stride), torch.float32, q.device)
    row_checks = empty(limits.shape, torch.float32, q.device)
    key_checks = empty(k.shape[:3], torch.float32, q.device)
    bell = bool(problem.terms)
    to_bells = empty(limits.shape, torch.float32, q.device) if bell else limits
    roles = roles_of(problem.open_layout)
    assert roles is not None
    facts = _facts(problem, roles.main, True, limits)
    out, given, limits = _readable(out), _readable(grad), limits.contiguous()
    launcher = _Launcher(problem, roles, facts, out, given)
    each, tiles, key_tiles = heads // key_heads, -(-n // BLOCK), -(-m // BLOCK)
    works, key_works = batch * heads * tiles, batch * key_heads * key_tiles
    more = gathered_keys(problem, roles, launcher.head) or Gathered(nothing(limits), k, v)
    options = launcher.options("queries")
    launcher.persistent(
        query_gradients, options, works, more.beside,
        (
            tiles_of(q, BLOCK), tiles_of(k, options.step), tiles_of(v, options.step),
            tiles_of(more.k, options.step), tiles_of(more.v, options.step), tiles_of(out, BLOCK),
            tiles_of(given, BLOCK), tiles_of(dq, BLOCK), limits, stats, to_bells, row_checks,
            facts.intervals, more.beside, facts.bells, heads, each, n, m, tiles, works, stride,
            problem.scale,
        ),
        BM=BLOCK, BN=options.step, TURNS=options.turns,
    )  # fmt: skip
    rows_too = gathered_rows(problem, roles, launcher.head, facts, given, stats)
    rows_too = rows_too or GatheredRows(nothing(limits), q, given, stats)
    options = launcher.options("keys")
    launcher.persistent(
        key_gradients, options, key_works, rows_too.beside,
        (
            tiles_of(q, options.step), tiles_of(k, BLOCK), tiles_of(v, BLOCK),
            tiles_of(given, options.step), tiles_of(dk, BLOCK), tiles_of(dv, BLOCK),
            numbers_tiles(stats, n, options.step), tiles_of(rows_too.q, options.step),
            tiles_of(rows_too.grad, options.step),
            numbers_tiles(rows_too.numbers, rows_too.beside.length or n, options.step), key_checks,
            facts.intervals, facts.columns, rows_too.beside, heads, key_heads, each, n, m,
            key_tiles, key_works, problem.scale,
        ),
        BM=options.step, BN=BLOCK, TURNS=options.turns,
    )  # fmt: skip
    rows, keys = row_checks.numel(), key_checks.numel()
    row_programs, key_programs = -(-rows // SCAN), -(-keys // SCAN)
    launcher.overlapping(
        repair_gradients, row_programs + key_programs, None, (more.beside, rows_too.beside),
        (
            vectors(q), vectors(k), vectors(v), vectors(given), vectors(dq), vectors(dk),
            vectors(dv), stats, to_bells, row_checks, key_checks, facts.intervals, facts.columns,
            more.beside, rows_too.beside, heads, key_heads, each, n, m, rows, keys, row_programs,
            stride, problem.scale,
        ),
        {
            "D": channels, "NUMBERS": NUMBERS, "OVERLAPS": True,
            "KEYS_BESIDE": more.beside.length > 0, "ROWS_BESIDE": rows_too.beside.length > 0,
        },
    )  # fmt: skip
    differentiate_tokens(problem, roles, out, given, limits, stats, to_bells, dq, dk, dv)
    return (dq, dk, dv, to_bells) if bell else (dq, dk, dv)
