"""What a decoder remembers: keys and values, as far back as its mechanism can reach."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Cache", "LayerCache"]


class LayerCache:
    """Keys and values of one layer; no more of them than a later query can reach.

    Args:
        remembers: how many keys that is, the query's own among them; None for all.
    """

    def __init__(self, remembers: int | None) -> None:
        self.remembers = remembers
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values `(B, H, M, D)` with these new ones at the end; keeps what the next
        query needs of them.
        """
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], 2)
            values = torch.cat([self.values, values], 2)
        # The next query is a key too.
        start = 0 if self.remembers is None else max(keys.shape[2] - (self.remembers - 1), 0)
        self.keys, self.values = keys[:, :, start:], values[:, :, start:]
        return keys, values

    def select(self, samples: Tensor) -> None:
        """Keeps these samples, in this order: beams that went on."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[samples], self.values[samples]


class Cache:
    """The caches of all layers, and how many tokens they have seen.

    Attributes:
        length: tokens until now, whatever has been forgotten.
        real: bool `(B, length)`, or None when all tokens are real.
    """

    def __init__(self, remembers: list[int | None]) -> None:
        self.layers = [LayerCache(own) for own in remembers]
        self.length = 0
        self.real: Tensor | None = None

    def select(self, samples: Tensor) -> None:
        for layer in self.layers:
            layer.select(samples)
        if self.real is not None:
            self.real = self.real[samples]
