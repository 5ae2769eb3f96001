"""How far each token may look when all of them share a budget.

Every token asks for a share r > 0; all are multiplied by one number c, the same for a whole sample
and layer, and none gets more than its cap:

    Σ min(c·r, cap) = total        (over heads and real queries)

The left side grows with c, so there is one such c. Between two caps it is linear: sorting the
quotients cap/r tells which tokens are capped, and then c is a quotient of two sums, through which
the gradient goes. Where all have one cap, sorting the shares alone is enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["common_factor", "room"]


def common_factor(shares: Tensor, caps: Tensor, total: Tensor, counts: Tensor) -> Tensor:
    """The c with Σ min(c · shares, caps) = total, in float64, with its gradient to the shares.

    Args:
        shares: above 0, `(B, L)`.
        caps: at least 0, broadcastable to `(B, L)`; quickest as `(1, 1)`, one for all.
        total: `(B,)`. Where it is not below the sum of the caps, c is as large as needed for all of
            them.
        counts: bool, broadcastable to `(B, L)`: what takes part in the sums.

    Returns:
        `(B,)`; 0 for a sample in which nothing counts.
    """
    if shares.shape[-1] == 0:
        return shares.sum(-1, dtype=torch.float64)
    counts = counts.expand(shares.shape)
    caps, total = caps.double(), total.double()
    with torch.no_grad():
        own = torch.where(counts, shares, 0.0)
        if caps.numel() == 1:
            capped = _above_one_cap(own, caps.reshape(()), total)
        else:
            capped = _capped(own.double(), torch.where(counts, caps, 0.0), total, counts)
    shares, caps = shares.double(), caps.expand(shares.shape)
    left = total - torch.where(capped, caps, 0.0).sum(-1)
    free = torch.where(counts & ~capped, shares, 0.0).sum(-1)
    everyone = free == 0
    largest = torch.where(counts, caps / shares, 0.0).amax(-1).detach()
    return torch.where(everyone, largest, left / torch.where(everyone, 1.0, free))


def _capped(shares: Tensor, caps: Tensor, total: Tensor, counts: Tensor) -> Tensor:
    """Which tokens get their cap and no more, bool `(B, L)`."""
    # What does not count never comes before what does, and adds nothing to the sums.
    quotient = torch.where(counts, caps / torch.where(counts, shares, 1.0), torch.inf)
    order = quotient.argsort(dim=-1, stable=True)
    in_order = quotient.gather(-1, order)
    before = caps.gather(-1, order).cumsum(-1) - caps.gather(-1, order)
    after = _from_here_on(shares.gather(-1, order))
    # With the factor at which this token would just reach its cap, the budget is not yet spent.
    spent = before + torch.where(in_order.isfinite(), in_order, 0.0) * after
    full = (spent <= total[..., None]) & in_order.isfinite()
    return torch.zeros_like(full).scatter(-1, order, full)


def _above_one_cap(shares: Tensor, cap: Tensor, total: Tensor) -> Tensor:
    """The same where all have one cap: those whose share is at least the smallest that gets it. No
    order of tokens is needed, only that of the shares, which are 0 for what does not count.
    """
    in_order = shares.sort(dim=-1, descending=True).values.double()
    before = cap * torch.arange(shares.shape[-1], device=shares.device)
    after = _from_here_on(in_order)
    there = in_order > 0
    spent = before + cap / torch.where(there, in_order, 1.0) * after
    full = there & (spent <= total[..., None])
    least = torch.where(full, in_order, torch.inf).amin(-1, keepdim=True)
    return shares >= least


def _from_here_on(values: Tensor) -> Tensor:
    """Of each the sum with all after it. The difference of two sums would lose the smallest, and be
    below 0.
    """
    return values.flip(-1).cumsum(-1).flip(-1)


def room(n: int, real: Tensor) -> Tensor:
    """How many real tokens lie to the left and to the right of each, `(2, B, n)`, in a sequence
    whose real ones are bool `(B, n)`.
    """
    seen = real.to(torch.float64).cumsum(-1)
    own = real.to(torch.float64)
    return torch.stack([seen - own, seen[..., -1:] - seen])
