"""α-entmax by its textbook definition: bisection on τ, one row at a time, in Python's floats."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def row_by_bisection(row: list[float], alpha: float) -> list[float]:
    """p_j = [(α−1)·x_j − τ]₊^(1/(α−1)) with the τ for which they sum to one; softmax at α = 1."""
    top = max(row, default=-math.inf)
    if top == -math.inf:
        return [0.0] * len(row)
    if alpha == 1:
        powers = [math.exp(x - top) for x in row]
    else:
        scaled = [(alpha - 1) * (x - top) for x in row]
        low, high = -1.0, 0.0
        for _ in range(200):
            middle = (low + high) / 2
            if math.fsum(powers_of(scaled, middle, alpha)) >= 1:
                low = middle
            else:
                high = middle
        powers = powers_of(scaled, low, alpha)
    total = math.fsum(powers)
    return [power / total for power in powers]


def powers_of(scaled: list[float], tau: float, alpha: float) -> list[float]:
    return [max(z - tau, 0.0) ** (1 / (alpha - 1)) for z in scaled]


def by_bisection(x: Tensor, alpha: float | Tensor) -> Tensor:
    """α-entmax over the last dim, in float64; a tensor α broadcasts with x."""
    rows = x.double().reshape(-1, x.shape[-1]).tolist()
    orders = torch.as_tensor(alpha, dtype=torch.float64)
    listed = orders.expand(*x.shape[:-1], 1).reshape(-1).tolist()
    found = [row_by_bisection(row, order) for row, order in zip(rows, listed, strict=True)]
    return torch.tensor(found, dtype=torch.float64).reshape(x.shape)
