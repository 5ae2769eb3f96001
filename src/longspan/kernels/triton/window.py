"""What a learned window computes on a GPU before it attends: shares, and their part of a budget.

Triton is imported when either is first computed, as for attention; who asks has to look first
whether the kernels take the case.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import available, current, interpreted

__all__ = [
    "LARGEST_EXPONENT",
    "LONGEST",
    "SHORTEST",
    "Budget",
    "budget_gradient",
    "budgeted",
    "left_to_torch",
    "share_gradients",
    "shares_of",
    "takes_budget",
    "takes_network",
]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

# A share's exponent is no larger, and no lower than its opposite. No reach is shorter: where it is
# 0 a bell has no width, and a root no gradient. And none is longer: its square has to be a number.
LARGEST_EXPONENT = 60.0
SHORTEST, LONGEST = 1e-6, 1e15

# Channels of a head: more than `LARGEST` in half precision alone, on cards whose multiprocessors
# have room for the three parts of a matrix, and not in traced programs, which do not know the card.
LARGEST, LARGEST_WITH_ROOM = 64, 128
ROOM = 200 << 10


class Budget(NamedTuple):
    """What shares are multiplied for.

    Attributes:
        mean: of what tokens get, and
        cap: the most that one gets, of the reach or of its square.
        squared: whether it is of the square, that is, of the variance.
        most: the largest reach.
        start: the factor where there is nothing to share out.
        width: what squares of reaches are divided by to be variances; 0 where reaches are wanted.
    """

    mean: float
    cap: float
    squared: bool
    most: float
    start: float
    width: float


# Known beforehand: traced programs ask, and cannot look.
INSTALLED = available()


class _Local(threading.local):
    unused = False


_LOCAL = _Local()


@contextmanager
def left_to_torch() -> Iterator[None]:
    """In here, and outside of traced programs, the kernels take nothing: to compare with them."""
    before, _LOCAL.unused = _LOCAL.unused, True
    try:
        yield
    finally:
        _LOCAL.unused = before


def takes_network(q: Tensor, w: Tensor, u: Tensor) -> bool:
    """Whether `shares_of` computes this."""
    if not takes_budget(q) or w.dtype not in DTYPES or u.dtype not in DTYPES:
        return False
    if q.shape[3] <= LARGEST:
        return True
    wide = q.shape[3] <= LARGEST_WITH_ROOM and q.dtype != torch.float32
    return wide and not torch.compiler.is_compiling() and _has_room(q.device)


def takes_budget(x: Tensor) -> bool:
    """Whether `budgeted` computes this: where Triton is, for anything but nothing."""
    if not INSTALLED or x.dtype not in DTYPES or 0 in x.shape:
        return False
    if torch.compiler.is_compiling():
        return x.is_cuda
    return not _LOCAL.unused and x.device.type == ("cpu" if interpreted() else "cuda")


@cache
def _has_room(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    properties: Any = torch.cuda.get_device_properties(device)
    return bool(properties.shared_memory_per_block_optin >= ROOM)


def shares_of(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """r = exp(uᵀ tanh(w q)), float32 `(B, H, N)`, from q `(B, H, N, D)`, w `(H, D, D)` and u
    `(H, D)`.
    """
    from . import shares
    from .ahead import compiled_together

    def later() -> object:
        found = q.new_empty(q.shape[:3], dtype=torch.float32)
        return shares.share_gradients(q, w, u, found, found, _wanted(q, w, u))

    with current(q.device):
        likely = later if any(_wanted(q, w, u)) else None
        return compiled_together(lambda: shares.shares_of(q, w, u), likely)


def _wanted(q: Tensor, w: Tensor, u: Tensor) -> tuple[bool, bool, bool]:
    return q.requires_grad, w.requires_grad, u.requires_grad


def share_gradients(
    q: Tensor, w: Tensor, u: Tensor, share: Tensor, grad: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of q, and, one after the other and flat, those of w and u in float32: each if it
    is wanted.
    """
    from . import shares
    from .ahead import compiled_together

    with current(q.device):
        return compiled_together(lambda: shares.share_gradients(q, w, u, share, grad, wanted))


def budgeted(
    shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget
) -> tuple[Tensor, Tensor, Tensor]:
    """See `factor.budgeted`."""
    from . import factor
    from .ahead import compiled_together

    def later() -> object:
        state = shares.new_empty((shares.shape[0], 3), dtype=torch.float64)
        return factor.budget_gradient(shares, real, whole, budget, state, shares)

    with current(shares.device):
        return compiled_together(
            lambda: factor.budgeted(shares, real, whole, budget),
            later if shares.requires_grad else None,
        )


def budget_gradient(
    shares: Tensor,
    real: Tensor | None,
    whole: Tensor | None,
    budget: Budget,
    state: Tensor,
    grad: Tensor,
) -> Tensor:
    """The gradient of the shares, from that of the reaches or variances."""
    from . import factor
    from .ahead import compiled_together

    with current(shares.device):
        return compiled_together(
            lambda: factor.budget_gradient(shares, real, whole, budget, state, grad)
        )
