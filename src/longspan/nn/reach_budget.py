"""The budget of a learned window: what multiplies the shares that its tokens and heads ask for."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.window import Budget, takes_budget, window_budget
from .budgets import common_factor, room
from .mechanism import Setting
from .running import mean_of_all

__all__ = ["Multiplied", "ReachBudget"]

# How much of a running factor each training step replaces.
MOMENTUM = 0.05


class Multiplied(NamedTuple):
    """What a GPU's kernels make of shares.

    Attributes:
        widths: float32 as the shares, with a gradient: reaches, or variances where these were asked
            for.
        reach: the reaches, capped, without gradient.
        factor: of every sample, float64 `(B,)`, without gradient.
    """

    widths: Tensor
    reach: Tensor
    factor: Tensor


class ReachBudget(NamedTuple):
    """What the tokens and heads of a sample share in one layer.

    Attributes:
        of: what is fixed: the mean `"reach"`, the mean `"variance"`, or the number of `"pairs"`.
        mean_reach: tokens to each side, on average.
        max_reach: at most.
        start: the factor where there is nothing to share out.
        causal: whether there are pairs to the left alone.
        sided: whether the shares are those of all heads for the left, and then for the right.
    """

    of: Literal["reach", "variance", "pairs"]
    mean_reach: float
    max_reach: int
    start: float
    causal: bool
    sided: bool

    def factors(self, shares: Tensor, setting: Setting) -> Tensor:
        """c for every sample, float64 `(B,)`."""
        found, _ = self.shared_out(shares, setting)
        # Where nobody can look anywhere (all tokens are global, or there is only one) there is
        # nothing to share out, and any reach will do but 0, at which a bell has no width.
        return torch.where(found > 0, found, self.start)

    def shared_out(self, shares: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        """The c with which the budget is met, 0 where there is nothing to share out; and whether no
        larger one would meet it, too: in a text that is too short for its budget many do.
        """
        batch, heads, n = shares.shape
        real, counts = _taking_part(shares, setting)
        if self.of == "pairs":
            return self._pairs_shared_out(shares, real, counts)
        own = shares.reshape(batch, heads * n)
        counted = counts[:, None].expand(batch, heads, n).reshape(batch, heads * n)
        tokens = counts.sum(-1).double() * heads
        cap = own.new_full((1, 1), self.max_reach, dtype=torch.float64)
        if self.of == "reach":
            return common_factor(own, cap, tokens * self.mean_reach, counted), tokens > 0
        total = tokens * self.mean_reach**2
        found = common_factor(own.double().square(), cap.square(), total, counted).sqrt()
        return found, tokens > 0

    def _pairs_shared_out(
        self, shares: Tensor, real: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, heads, n = shares.shape
        heads = heads // 2 if self.sided else heads
        sides = 1 if self.causal else 2
        rooms = room(n, real)[:sides, :, None].expand(sides, batch, heads, n)
        caps = rooms.clamp(max=self.max_reach).permute(1, 0, 2, 3).flatten(1)
        all_sides = counts[:, None, None].expand(batch, sides, heads, n).flatten(1)
        most = torch.where(all_sides, caps, 0.0)
        total = most.clamp(max=self.mean_reach).sum(-1)
        own = shares.flatten(1)
        asked = own if self.sided else own.repeat(1, sides)
        return common_factor(asked, caps, total, all_sides), total < most.sum(-1)

    def by_kernels(self, shares: Tensor) -> bool:
        """Whether a GPU finds the factors, and multiplies."""
        return self.of != "pairs" and takes_budget(shares)

    def multiplied(self, shares: Tensor, setting: Setting, width: float = 0.0) -> Multiplied:
        """Each sample's shares by its factor, where `by_kernels`.

        Args:
            width: what squares of reaches are divided by to be variances; 0 for reaches.
        """
        n, power = shares.shape[2], self._power
        real, tokens = setting.key_padding, setting.global_tokens
        budget = Budget(
            mean=self.mean_reach**power,
            cap=float(self.max_reach) ** power,
            squared=power == 2,
            most=float(self.max_reach),
            start=self.start,
            width=width,
        )
        widths, reach, state = window_budget(
            shares,
            None if real is None else _of_queries(real, n, True),
            None if tokens is None else _of_queries(tokens, n, False),
            budget,
        )
        return Multiplied(widths, reach, state[:, 0])

    def followed(self, factor: Tensor, shares: Tensor, setting: Setting) -> Tensor:
        """A running factor, moved towards that of a batch, for the batches after it.

        The samples' 1/c are averaged: where none meets its cap, that is the c with which the budget
        is met over all of them. Their c itself differ by much, and the mean of these is larger.
        Samples in which there is nothing to share out, or less than the budget allows, say nothing.
        """
        with torch.no_grad():
            if self.by_kernels(shares):
                own = self.multiplied(shares, setting).factor
                says = _taking_part(shares, setting)[1].any(-1)
            else:
                own, says = self.shared_out(shares, setting)
            power = -self._power
            found = mean_of_all(own.pow(power), says)
            moved = torch.lerp(factor.pow(power), found, MOMENTUM).pow(1 / power)
            return torch.where(found.isfinite(), moved, factor)

    @property
    def _power(self) -> int:
        """Of the reach, of which the budget fixes the mean."""
        return 2 if self.of == "variance" else 1


def _taking_part(shares: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """The real queries, and those of them that share the budget, bool `(B, N)`: a global row sees
    everything, and has no reach.
    """
    batch, _, n = shares.shape
    real = torch.ones(batch, n, dtype=torch.bool, device=shares.device)
    if setting.key_padding is not None:
        real = _of_queries(setting.key_padding, n, True)
    counts = real
    if setting.global_tokens is not None:
        counts = counts & ~_of_queries(setting.global_tokens, n, False)
    return real, counts


def _of_queries(mask: Tensor, n: int, before: bool) -> Tensor:
    """A mask of keys `(B, M)` as one of queries `(B, n)`, the last of which are the last keys; of
    those before the first key, what is said.
    """
    m = mask.shape[1]
    return mask[:, m - n :] if n <= m else F.pad(mask, (n - m, 0), value=before)
