"""Learned reaches as integers: one small kernel for each weight that has them."""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...weights import conversions
from ..problem import BellReach, RampReach, Reach, SameReach
from .arguments import ReachValues, per_row
from .pairs import FARTHEST, bell_reach

__all__ = ["reaches_of"]

BLOCK = 1024


@triton.jit
def _rounded(  # type: ignore[no-untyped-def]
    values, found, heads, rows, count, most,
    BELL: tl.constexpr, CONSTANT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Integers from the variances of bells, or from the spans of ramps, by the rules of
    `functional.reach.integer_reach`, in float64 as there.

    CONSTANT is −2·ln(threshold), or the softness; among the arguments it would be rounded to
    float32.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < count
    unit = place // rows
    start = values.data + (unit // heads).to(tl.int64) * values.batch
    start += (unit % heads).to(tl.int64) * values.head
    start += (place % rows).to(tl.int64) * values.row
    value = tl.load(start, mask=live, other=0.0)
    constant = tl.full([BLOCK], CONSTANT, tl.float64)
    if BELL:
        reach = bell_reach(value, constant, most)
    else:
        reach = tl.ceil(constant + value.to(tl.float64)) - 1.0
        reach = tl.where(reach == reach, tl.maximum(reach, -1.0), 0.0)
        reach = tl.minimum(reach, FARTHEST).to(tl.int32)
    tl.store(found + place, reach, mask=live)


def reaches_of(
    reaches: tuple[Reach, ...], device: torch.device, *, where_read: bool = False
) -> tuple[ReachValues, ...]:
    """The reaches as int32 `(B|1, H|1, N|1)`; or, of bells, left to be computed `where_read`: for
    kernels that most often read none.
    """
    return tuple(_values(reach, device, where_read) for reach in reaches)


def _values(reach: Reach, device: torch.device, where_read: bool) -> ReachValues:
    if isinstance(reach, SameReach):
        return _same(reach.tokens, device)
    if isinstance(reach, BellReach):
        curve = -2 * math.log(reach.threshold)
        if where_read:
            (bits,) = struct.unpack("<q", struct.pack("<d", curve))
            return ReachValues(*per_row(reach.variance), (bits, reach.most))
        return _computed(reach.variance, reach.most, True, curve)
    assert isinstance(reach, RampReach)
    return _computed(reach.span, conversions.FARTHEST, False, reach.softness)


@lru_cache(maxsize=256)
def _same(tokens: int, device: torch.device) -> ReachValues:
    return ReachValues(torch.tensor([tokens], dtype=torch.int32, device=device), 0, 0, 0)


def _computed(values: Tensor, most: int, bell: bool, constant: float) -> ReachValues:
    found = torch.empty(values.shape, dtype=torch.int32, device=values.device)
    _, heads, rows = values.shape
    count = found.numel()
    _rounded[(-(-count // BLOCK),)](
        per_row(values),
        found,
        heads,
        rows,
        count,
        most,
        BELL=bell,
        CONSTANT=constant,
        BLOCK=BLOCK,
    )
    return ReachValues(*per_row(found))
