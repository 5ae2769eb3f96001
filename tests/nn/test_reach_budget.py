"""The budget of a learned window, without a window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import Setting
from longspan.nn.reach_budget import ReachBudget

BATCH, HEADS, TOKENS = 2, 3, 30


def budget_of(of: Any, mean: float = 5.0, most: int = 25, **kind: bool) -> ReachBudget:
    return ReachBudget(of, mean, most, 7.0, **{"causal": False, "sided": False, **kind})


def some_shares(heads: int = HEADS) -> Tensor:
    source = torch.Generator().manual_seed(1)
    return torch.randn(BATCH, heads, TOKENS, generator=source).exp()


def test_a_pair_of_a_causal_window_lies_to_its_left() -> None:
    """As many as a fixed causal window has, up to what is cut off of reaches."""
    shares, places = some_shares(), torch.arange(float(TOKENS))
    found, says = budget_of("pairs", causal=True).shared_out(shares, Setting())
    reach = found[:, None, None] * shares.double()
    pairs = torch.minimum(reach, places.clamp(max=25)).sum((1, 2))
    torch.testing.assert_close(
        pairs, torch.full_like(pairs, float(HEADS * places.clamp(max=5).sum()))
    )
    assert says.all()


def test_pairs_of_both_sides_are_one_budget() -> None:
    shares, places = some_shares(2 * HEADS), torch.arange(float(TOKENS))
    found, _ = budget_of("pairs", sided=True).shared_out(shares, Setting())
    reach = found[:, None, None] * shares.double()
    left = torch.minimum(reach[:, :HEADS], places.clamp(max=25))
    right = torch.minimum(reach[:, HEADS:], places.flip(0).clamp(max=25))
    pairs = (left + right).sum((1, 2))
    wanted = 2 * HEADS * places.clamp(max=5).sum()
    torch.testing.assert_close(pairs, torch.full_like(pairs, float(wanted)))


@pytest.mark.parametrize(("of", "power"), [("reach", 1), ("variance", 2)])
def test_means_are_over_those_who_take_part(of: Any, power: int) -> None:
    shares = some_shares()
    real = torch.arange(TOKENS).expand(BATCH, TOKENS) < torch.tensor([[30], [20]])
    tokens = (torch.arange(TOKENS) < 4).expand(BATCH, TOKENS)
    setting = Setting(key_padding=real, global_tokens=tokens)
    found = budget_of(of).factors(shares, setting)
    reach = (found[:, None, None] * shares.double()).clamp(max=25)
    for place in range(BATCH):
        own = reach[place][:, real[place] & ~tokens[place]]
        assert float(own.pow(power).mean()) == pytest.approx(5.0**power, rel=1e-9)


@pytest.mark.parametrize("of", ["reach", "variance", "pairs"])
def test_nothing_to_share_out(of: Any) -> None:
    """The start, and a running factor stays where it is."""
    everything = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    own, setting = budget_of(of), Setting(global_tokens=everything)
    assert own.factors(some_shares(), setting).tolist() == [7.0] * BATCH
    factor = torch.tensor([3.0], dtype=torch.float64)
    assert torch.equal(own.followed(factor, some_shares(), setting), factor)
