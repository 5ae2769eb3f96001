"""How far word travels: shortest paths from token to token through layers of one pattern."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Hops", "hops_of"]


class Hops(NamedTuple):
    """Shortest paths through layers of one pattern.

    Attributes:
        layers: after so many layers every token has heard every other that it can ever hear (the
            longest path).
        mean: the mean length of the shortest paths between different tokens.
        connected: the share of ordered pairs of different tokens that are ever connected (1/2 for a
            causal pattern).
    """

    layers: int
    mean: float
    connected: float


def hops_of(mask: Tensor) -> Hops:
    """Counts hops for a square mask `(B|1, H|1, n, n)`; of several samples, the most layers and the
    mean of the rest.

    A layer joins its heads, so what any of them sees counts; and it keeps what a token has (the
    residual stream), so a token has always heard itself.
    """
    n = mask.shape[-1]
    if mask.shape[-2] != n:
        raise ValueError(f"hops need as many queries as keys, got {mask.shape[-2]} and {n}")
    steps = mask.any(1).float()
    heard = torch.eye(n, device=mask.device).expand_as(steps)
    layers, lengths, found = 0, 0.0, 0
    while True:
        grown = ((steps @ heard + heard) > 0).float()
        fresh = int((grown - heard).sum())
        if fresh == 0:
            break
        layers += 1
        lengths += layers * fresh
        found += fresh
        heard = grown
    others = steps.shape[0] * n * (n - 1)
    return Hops(layers, lengths / max(found, 1), found / others if others else 1.0)
