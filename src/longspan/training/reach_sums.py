"""Sums over the reaches of one layer, from which means, quantiles and shares of variance follow.

All of them are kept where the reaches are, and have one size however many tokens there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .measuring import QUANTILES

__all__ = ["ByLevel", "Explained", "LayerSums", "Spread"]

# Quantiles are read from counts in steps of about one percent, from 2^LOWEST on.
STEPS = 64  # where a reach doubles
LOWEST, HIGHEST = -8, 24

# A variance of ln(reach) below this is rounding: all reaches are the same.
SAME = 1e-10


class Spread(NamedTuple):
    """How reaches are spread: their mean, quantiles (of which the ends are exact, and the others
    within one percent), and the share of them at the layer's `max_reach`.
    """

    mean: float
    quantiles: list[float]
    at_most: float


class ByLevel(NamedTuple):
    """Sums by label: of tokens `(K,)`, their reach `(H, K)`, and its logarithm `(H, K)`, float64;
    the last of each is of tokens without a label.
    """

    tokens: Tensor
    reach: Tensor
    log: Tensor


@dataclass(frozen=True, slots=True)
class Explained:
    """Sums of squares of ln(reach) in a layer.

    Attributes:
        total: around the layer's mean.
        values: how many there are.
        mean: of all of them.
        by: what follows from something known, less what chance would give; None where every token
            has a label of its own, so that nobody can tell.
    """

    total: float
    values: int
    mean: float
    by: dict[str, float | None]


@dataclass(slots=True)
class LayerSums:
    """Sums over the tokens of a layer.

    Args:
        heads: of the layer.
        max_reach: of its window.
        levels: how many different labels there are, by name.
        device: of the reaches.
    """

    heads: int
    max_reach: int
    levels: Mapping[str, int]
    device: torch.device
    tokens: int = 0
    _each: Tensor = field(init=False)
    _ends: Tensor = field(init=False)
    _counts: Tensor = field(init=False)
    _by: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        h = self.heads
        # Of every head: reach, log, its square, and how many are at the most; of all heads
        # together: the square of a token's sum, which is the same in each of them.
        self._each = self._zeros(5, h)
        self._ends = torch.stack((self._zeros(h) + torch.inf, self._zeros(h)))
        self._counts = self._zeros(h, STEPS * (HIGHEST - LOWEST))
        self._by = {name: self._zeros(2 * h + 1, k + 1) for name, k in self.levels.items()}

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def add(self, reach: Tensor, labels: Mapping[str, Tensor]) -> None:
        """Counts tokens.

        Args:
            reach: `(H, T)`.
            labels: of the tokens by name, int64 `(T,)`; below 0 for none.
        """
        reach = reach.double()
        self.tokens += reach.shape[1]
        log = reach.clamp(min=2.0**LOWEST).log()
        full = reach >= self.max_reach * (1 - 1e-6)
        whole = log.sum(0).square().expand_as(log)
        self._each += torch.stack(
            [own.sum(-1) for own in (reach, log, log.square(), full.double(), whole)]
        )
        if reach.shape[1]:
            self._ends[0] = torch.minimum(self._ends[0], reach.amin(-1))
            self._ends[1] = torch.maximum(self._ends[1], reach.amax(-1))
        steps = ((log / math.log(2) - LOWEST) * STEPS).long()
        _add_at(self._counts, steps.clamp(max=self._counts.shape[1] - 1), torch.ones_like(reach))
        values = torch.cat((torch.ones_like(reach[:1]), reach, log))
        for name, own in self._by.items():
            # What has no label is counted behind all labels.
            label = labels[name]
            _add_at(own, label.where(label >= 0, own.shape[1] - 1), values)

    def of_heads(self) -> list[Spread]:
        """The reaches of each head."""
        return [self._spread(slice(head, head + 1)) for head in range(self.heads)]

    def of_all(self) -> Spread:
        """Those of all heads."""
        return self._spread(slice(None))

    def _spread(self, heads: slice) -> Spread:
        each, ends = self._each[:, heads].cpu(), self._ends[:, heads].cpu()
        values = self.tokens * each.shape[1]
        low, high = float(ends[0].min()), float(ends[1].max())
        below = self._counts[heads].sum(0).cumsum(0).cpu()
        found = [low]
        for share in QUANTILES[1:-1]:
            step = int(torch.searchsorted(below, share * values))
            middle = 2.0 ** (LOWEST + (step + 0.5) / STEPS)
            found.append(min(max(middle, low), high))
        return Spread(float(each[0].sum()) / values, [*found, high], float(each[3].sum()) / values)

    def by(self, name: str) -> ByLevel:
        """Sums by a label, on the CPU."""
        own = self._by[name].cpu()
        return ByLevel(own[0], own[1 : self.heads + 1], own[self.heads + 1 :])

    def explained(self) -> Explained:
        """How much of the variance of ln(reach) goes with the head, with the token in its place
        (all heads of it together), and with each label.

        A head's part and a place's part add up to less than all: the rest is what heads make of a
        token each for itself. What labels explain is part of what places do, but for "head and
        token", for which every head has its own means.

        Labels explain something by chance alone, the more of them there are: with k of them, k − 1
        times the variance of tokens within one label. That is taken off.
        """
        h, t = self.heads, self.tokens
        each = self._each.cpu()
        middle = self._middle()
        total = float(each[2].sum()) - middle
        place = float(each[4, 0]) / h - middle
        found: dict[str, float | None] = {
            "head": float(each[1].square().sum()) / t - middle,
            "place": place,
        }
        for name in self._by:
            own = self.by(name)
            found[name] = self._among(own, place)
            if name == "token":
                found["head and token"] = self._among_each_head(own, total)
        if total <= SAME * h * t:
            total, found = 0.0, dict.fromkeys(found, 0.0)
        return Explained(total, h * t, float(each[1].sum()) / (h * t), found)

    def _among(self, by: ByLevel, place: float) -> float | None:
        """What labels explain of the sum of squares among places.

        Tokens without a label are a group, too, but how they differ from all others is not the
        label's doing.
        """
        there = by.tokens > 0
        labelled = int(there[:-1].sum())
        if labelled < 2:
            return 0.0
        count, log = by.tokens[there], by.log.sum(0)[there]
        parts = log.square() / (self.heads * count)
        left = self.tokens - len(count)
        if left <= 0:
            return None
        within = place + self._middle() - float(parts.sum())
        mean = log[:labelled].sum().square() / (self.heads * count[:labelled].sum())
        among = float(parts[:labelled].sum() - mean)
        return max(among - (labelled - 1) * within / left, 0.0)

    def _among_each_head(self, by: ByLevel, total: float) -> float | None:
        """What labels that every token has explain of all, with means for each head."""
        there = by.tokens > 0
        groups = int(there.sum())
        left = self.tokens - groups
        if left <= 0:
            return None
        among = float((by.log[:, there].square() / by.tokens[there]).sum()) - self._middle()
        return max(among - (groups - 1) * (total - among) / left, 0.0)

    def _middle(self) -> float:
        """The sum of squares that all values would have if they were their mean."""
        return float(self._each[1].sum()) ** 2 / (self.heads * self.tokens)


def _add_at(sums: Tensor, places: Tensor, values: Tensor) -> None:
    """Adds values `(R, T)` to sums `(R, K)` at places `(R, T)` or `(T,)` of their rows.

    As one row: on a CPU that is several times as fast as a scatter along the second of two.
    """
    rows, size = sums.shape
    begins = torch.arange(0, rows * size, size, device=sums.device)[:, None]
    sums.view(-1).scatter_add_(0, (begins + places).flatten(), values.flatten())
