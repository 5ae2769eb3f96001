"""Dropout of plain numbers on the compiled module."""

from __future__ import annotations

import torch
from torch import Tensor

from . import launch
from .native import native

__all__ = ["dropout"]


def dropout(x: Tensor, p: float, seed: int) -> Tensor:
    """x / (1 − p) where a number is kept, 0 elsewhere.

    Args:
        x: float32 or bfloat16, contiguous.
        p: the share that goes, in (0, 1).
        seed: of the draws. Number e takes word e mod 4 of the Philox counter (⌊e/4⌋ mod 2³²,
            ⌊e/2³⁴⌋, 0, 0), as `kernels.philox` has them.
    """
    y = torch.empty_like(x)
    count = x.numel()
    native().dropout(
        x.data_ptr(),
        y.data_ptr(),
        x.dtype == torch.bfloat16,
        count,
        int(p * 2**32),
        1 / (1 - p),
        seed,
        torch.get_num_threads() if count > launch.WORTH_THREADS else 1,
        launch.INSTRUCTIONS,
    )
    return y
