"""Learned reaches as integers: one small kernel for each weight that has them."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...weights import conversions
from ..problem import BellReach, RampReach, Reach, SameReach
from .arguments import Numbers, per_row
from .launching import launch

__all__ = ["reaches_of"]

BLOCK = 1024

SLACK = tl.constexpr(conversions.SLACK)
FARTHEST = tl.constexpr(float(conversions.FARTHEST))


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
    value = tl.load(start, mask=live, other=0.0).to(tl.float64)
    constant = tl.full([BLOCK], CONSTANT, tl.float64)
    if BELL:
        # NaN, and what is below 0, see themselves alone.
        square = tl.where(value > 0.0, value * constant, 0.0)
        reach = tl.floor(tl.sqrt(square) + tl.full([BLOCK], SLACK, tl.float64))
    else:
        reach = tl.ceil(constant + value) - 1.0
        reach = tl.where(reach == reach, tl.maximum(reach, -1.0), 0.0)
    reach = tl.minimum(reach, FARTHEST).to(tl.int32)
    tl.store(found + place, tl.minimum(reach, most), mask=live)


def reaches_of(reaches: tuple[Reach, ...], device: torch.device) -> tuple[Numbers, ...]:
    """The reaches as int32 `(B|1, H|1, N|1)`."""
    return tuple(_numbers(reach, device) for reach in reaches)


def _numbers(reach: Reach, device: torch.device) -> Numbers:
    if isinstance(reach, SameReach):
        return _same(reach.tokens, device)
    if isinstance(reach, BellReach):
        return _computed(reach.variance, reach.most, True, -2 * math.log(reach.threshold))
    assert isinstance(reach, RampReach)
    return _computed(reach.span, conversions.FARTHEST, False, reach.softness)


@lru_cache(maxsize=256)
def _same(tokens: int, device: torch.device) -> Numbers:
    return Numbers(torch.tensor([tokens], dtype=torch.int32, device=device), 0, 0, 0)


def _computed(values: Tensor, most: int, bell: bool, constant: float) -> Numbers:
    found = torch.empty(values.shape, dtype=torch.int32, device=values.device)
    _, heads, rows = values.shape
    count = found.numel()
    launch(
        _rounded,
        (-(-count // BLOCK),),
        (per_row(values), found, heads, rows, count, most),
        {"BELL": bell, "CONSTANT": constant, "BLOCK": BLOCK},
    )
    return per_row(found)
