"""The variances of made-up learned bells on a GPU, and how many pairs rows of a reach have."""

from __future__ import annotations

import torch
from torch import Tensor

from ...measure import Size
from ...weights import variance_of
from ..reaches import Kind, reaches

__all__ = ["THRESHOLD", "pairs_of_reach", "pairs_of_window", "variances"]

THRESHOLD = 0.5
MEAN = 84.0

# Independent draws: evenly between these, which gives reaches of 16 to 124 and their mean of 84.
SMALLEST, RANGE = 200.0, 11000.0


def variances(kind: Kind, size: Size, device: torch.device) -> Tensor:
    """Float32 `(B, H, N)`, wanting gradients: reaches of 84 tokens on average at `THRESHOLD`.

    `"smooth"` and `"long-tailed"` are those of the CPU benchmark. `"independent"` draws variances
    evenly, not reaches, so that no reach is above 125.
    """
    shape = (size.batch, size.heads, size.length)
    if kind == "independent":
        source = torch.Generator().manual_seed(0)
        found = SMALLEST + RANGE * torch.rand(shape, generator=source)
    else:
        drawn = reaches(kind, size.batch * size.heads, size.length, mean=MEAN)
        found = variance_of(drawn.view(shape), THRESHOLD)
    return found.to(device=device, dtype=torch.float32).requires_grad_()


def pairs_of_reach(reach: Tensor) -> int:
    """Pairs of rows that see so many tokens each side, int `(B, H, N)`, within the text."""
    n = reach.shape[-1]
    at = torch.arange(n, device=reach.device)
    first, last = (at - reach).clamp(min=0), (at + reach).clamp(max=n - 1)
    return int((last - first + 1).sum())


def pairs_of_window(size: Size, reach: int) -> int:
    """Pairs of a window, over samples and heads."""
    return size.batch * size.heads * pairs_of_reach(torch.full((size.length,), reach))
