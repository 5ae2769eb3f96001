"""α-entmax of plain rows on the compiled module."""

from __future__ import annotations

import torch
from torch import Tensor

from . import launch
from .native import native

__all__ = ["entmax", "entmax_backward"]


def entmax(x: Tensor, alphas: Tensor) -> Tensor:
    """p of every row of float32 `(rows, length)`, each with its own α `(rows,)`."""
    p = torch.empty_like(x)
    rows, length = x.shape
    native().entmax(
        x.data_ptr(),
        p.data_ptr(),
        rows,
        length,
        alphas.data_ptr(),
        _threads(x),
        launch.INSTRUCTIONS,
    )
    return p


def entmax_backward(
    p: Tensor, g: Tensor, alphas: Tensor, wants_alpha: bool
) -> tuple[Tensor, Tensor]:
    """Gradients to the scores, and to every row's α (float64; empty unless wanted)."""
    rows, length = p.shape
    dx = torch.empty_like(p)
    to_alpha = torch.empty(rows if wants_alpha else 0, dtype=torch.float64, device="cpu")
    native().entmax_backward(
        p.data_ptr(),
        g.data_ptr(),
        dx.data_ptr(),
        to_alpha.data_ptr() if wants_alpha else 0,
        rows,
        length,
        alphas.data_ptr(),
        _threads(p),
        launch.INSTRUCTIONS,
    )
    return dx, to_alpha


def _threads(x: Tensor) -> int:
    return torch.get_num_threads() if x.numel() > launch.WORTH_THREADS else 1
