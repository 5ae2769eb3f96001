"""Launches of the learned window's budget: one for a short sample, a few for a long one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .call import power_of_2
from .factor_kernels import (
    TRIED,
    Masks,
    budget_of_many,
    budget_of_one,
    gradient_of_many,
    gradient_of_one,
    moved_by_parts,
    try_factors,
)
from .launching import launch
from .window import Budget

__all__ = ["Cut", "budget_gradient", "budgeted"]

# Of a long sample, before its factor is known.
LAUNCHES = 3


class Cut(NamedTuple):
    """Into what samples are cut: one program has up to `whole` shares; of more, several, up to
    `parts`, have `part` or more, and read `block` at a time.
    """

    whole: int = 8192
    part: int = 1536
    parts: int = 128
    block: int = 512


CUT = Cut()


def budgeted(
    shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget, cut: Cut = CUT
) -> tuple[Tensor, Tensor, Tensor]:
    """What tokens get of a budget, from shares, float32 `(B, H, N)`.

    Args:
        real: which tokens are, bool `(B, N)`, and
        whole: which see everything, and take no part.

    Returns:
        Reaches or variances `(B, H, N)`, reaches with their cap, and of each sample what its
        gradient needs, float64 `(B, 3)`, the factor first.
    """
    batch, heads, rows = shares.shape
    length, device = heads * rows, shares.device
    out, capped = (torch.empty(shares.shape, dtype=torch.float32, device=device) for _ in "12")
    state = torch.empty((batch, 3), dtype=torch.float64, device=device)
    own, masks, flags = shares.contiguous(), *_masks(shares, real, whole)
    asks = {"MEAN": budget.mean, "CAP": budget.cap, "SQUARED": budget.squared}
    writes = {"MOST": budget.most, "START": budget.start, "WIDTH": budget.width}
    if length <= cut.whole:
        block = max(256, power_of_2(length))
        launch(
            budget_of_one,
            (batch,),
            (own, masks, out, capped, state, rows, length),
            {**flags, **asks, **writes, "BLOCK": block},
            num_warps=_warps(block),
        )
        return out, capped, state
    parts, each = _parts(length, cut)
    tried = torch.empty((LAUNCHES, batch, TRIED.value), dtype=torch.float64, device=device)
    tally = tried.new_empty((LAUNCHES, batch, parts, 2, TRIED.value))
    seen = tried.new_empty((batch, parts, 2))
    sizes, pieces = (rows, length, each, batch), {"PARTS": parts, "BLOCK": cut.block}
    for number in range(LAUNCHES):
        launch(
            try_factors,
            (parts, batch),
            (own, masks, tried, tally, seen, *sizes, number),
            {**flags, **asks, "FIRST": number == 0, **pieces},
            num_warps=8,
        )
    launch(
        budget_of_many,
        (parts, batch),
        (own, masks, tried, tally, seen, out, capped, state, *sizes, LAUNCHES),
        {**flags, **asks, **writes, **pieces},
    )
    return out, capped, state


def budget_gradient(
    shares: Tensor,
    real: Tensor | None,
    whole: Tensor | None,
    budget: Budget,
    state: Tensor,
    grad: Tensor,
    cut: Cut = CUT,
) -> Tensor:
    """The gradient of the shares, from that of the reaches or variances."""
    batch, heads, rows = shares.shape
    length = heads * rows
    found = torch.empty(shares.shape, dtype=torch.float32, device=shares.device)
    own, masks, flags = shares.contiguous(), *_masks(shares, real, whole)
    to, width = grad.contiguous(), {"WIDTH": budget.width}
    made = {**flags, "SQUARED": budget.squared, **width}
    if length <= cut.whole:
        block = max(256, power_of_2(length))
        launch(
            gradient_of_one,
            (batch,),
            (own, masks, state, to, found, rows, length),
            {**made, "BLOCK": block},
            num_warps=_warps(block),
        )
        return found
    parts, each = _parts(length, cut)
    sums = torch.empty((batch, parts), dtype=torch.float64, device=shares.device)
    grid, pieces = (parts, batch), {"PARTS": parts, "BLOCK": cut.block}
    launch(moved_by_parts, grid, (own, state, to, sums, length, each), {**width, **pieces})
    launch(
        gradient_of_many,
        grid,
        (own, masks, state, to, sums, found, rows, length, each),
        {**made, **pieces},
    )
    return found


def _masks(
    shares: Tensor, real: Tensor | None, whole: Tensor | None
) -> tuple[Masks, dict[str, Any]]:
    one, its_batch = _bytes(shares, real)
    two, batch = _bytes(shares, whole)
    flags = {"PADDED": real is not None, "GLOBAL": whole is not None}
    return Masks(one, its_batch, two, batch), flags


def _bytes(shares: Tensor, mask: Tensor | None) -> tuple[Tensor, int]:
    if mask is None:
        return shares, 0
    mask = mask if mask.stride(1) == 1 or mask.shape[1] == 1 else mask.contiguous()
    return mask.view(torch.uint8), mask.stride(0) if mask.shape[0] > 1 else 0


def _parts(length: int, cut: Cut) -> tuple[int, int]:
    """Programs for a sample, and shares for each, whole blocks of them."""
    parts = min(power_of_2(-(-length // cut.part)), cut.parts)
    return parts, -(-length // (parts * cut.block)) * cut.block


def _warps(block: int) -> int:
    return min(max(block // 512, 4), 32)
