"""Biases: a tensor, a table by distance, a slope for every head."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import broadcasts, describe, need_int, need_tensor
from ..fixed_order import lookup, spread
from .base import Place, Weight

__all__ = ["Alibi", "Bias", "DistanceBias", "table_index", "table_right"]


class Bias(Weight):
    """Adds a tensor to the scores. Where it is −inf, or the lowest finite number of its dtype, the
    pair does not exist.

    Args:
        tensor: float, four dims that broadcast to `(B, H, N, M)`; gets a gradient.
    """

    fields = ("tensor",)
    learned = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        need_tensor("Bias: tensor", tensor, "float", (4,))
        self.tensor = tensor

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        want = (batch, heads, n, m)
        if any(not broadcasts(have, w) for have, w in zip(self.tensor.shape, want, strict=True)):
            raise ValueError(
                f"Bias: tensor must broadcast to (B, H, N, M) = {want}, got {describe(self.tensor)}"
            )

    def keeps(self) -> Tensor:
        tensor = self.tensor.detach()
        return (tensor > torch.finfo(tensor.dtype).min) | tensor.isnan()

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        return scores + torch.where(self.keeps(), self.tensor.to(scores.dtype), 0)


class DistanceBias(Weight):
    """Adds table[h, j − i] to the scores, as T5 and MPNet do; distances past an end take the end's
    entry.

    Args:
        table: float `(H, L)`, `(1, L)` or `(L,)`: the biases of the offsets −(L−1−right) … right;
            gets a gradient.
        right: the offset of the last entry; None puts offset 0 in the middle of an odd L.

    Reference:
        Raffel et al. 2020 (arXiv 1910.10683). Their buckets are an indexing of a smaller table:
        `embedding[buckets].T`.
    """

    fields = ("table", "right")
    learned = ("table",)

    def __init__(self, table: Tensor, *, right: int | None = None) -> None:
        need_tensor("DistanceBias: table", table, "float", (1, 2))
        self.table = table
        self.right = table_right("DistanceBias", table.shape[-1], right)

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        if self.table.dim() == 2 and not broadcasts(self.table.shape[0], heads):
            raise ValueError(
                f"DistanceBias: table must be for {heads} heads, got {describe(self.table)}"
            )

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        table = self.table if self.table.dim() == 2 else self.table[None]
        index = table_index(place.offset, table.shape[1], self.right)
        return scores + lookup(table.to(scores.dtype), index)


class Alibi(Weight):
    """Adds −slope·|i − j| to the scores, a slope for every head.

    Args:
        slopes: float `(H,)`; gets a gradient.

    Reference:
        Press, Smith, Lewis 2022, "Train Short, Test Long" (arXiv 2108.12409), there for causal
        attention.
    """

    fields = ("slopes",)
    learned = ("slopes",)

    def __init__(self, slopes: Tensor) -> None:
        need_tensor("Alibi: slopes", slopes, "float", (1,))
        self.slopes = slopes

    def check(self, batch: int, heads: int, n: int, m: int, d: int) -> None:
        if not broadcasts(self.slopes.shape[0], heads):
            raise ValueError(
                f"Alibi: slopes must have shape ({heads},), got {describe(self.slopes)}"
            )

    def on_scores(self, scores: Tensor, place: Place) -> Tensor:
        slopes = self.slopes.to(scores.dtype)[:, None, None]
        return scores - spread(slopes, (*scores.shape[:3], 1)) * place.offset.abs()


def table_right(name: str, length: int, right: int | None) -> int:
    """The offset of a table's last entry, checked."""
    if length == 0:
        raise ValueError(f"{name}: the table must have at least one entry")
    if right is None:
        if length % 2 == 0:
            raise ValueError(
                f"{name}: a table of even length {length} has no middle; "
                "say which offset its last entry has "
                f"with right= (0 for a causal model)"
            )
        return length // 2
    need_int(f"{name}: right", right)
    if not 0 <= right < length:
        raise ValueError(f"{name}: right must be within [0, {length - 1}], got {right}")
    return right


def table_index(offset: Tensor, length: int, right: int) -> Tensor:
    """Where the entry of each offset is in a table of the offsets −(length−1−right) … right."""
    return (offset + (length - 1 - right)).clamp(0, length - 1)
