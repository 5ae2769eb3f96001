"""The shared budget: one factor, found exactly, with its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longspan.nn.budgets import common_factor, room


def by_bisection(shares: Tensor, caps: Tensor, total: float) -> float:
    """The factor of one sample, without sorting anything."""
    low, high = 0.0, float((caps / shares).max())
    for _ in range(200):
        middle = (low + high) / 2
        spent = float(torch.minimum(middle * shares, caps).sum())
        low, high = (middle, high) if spent < total else (low, middle)
    return (low + high) / 2


def one(shares: Tensor, caps: Tensor, total: float, counts: Tensor | None = None) -> Tensor:
    counts = torch.ones_like(shares, dtype=torch.bool) if counts is None else counts
    return common_factor(
        shares[None], caps[None], torch.tensor([total], dtype=torch.float64), counts[None]
    )[0]


@given(st.integers(0, 2**31), st.integers(1, 40), st.floats(0.01, 0.999))
def test_meets_the_budget(seed: int, length: int, share: float) -> None:
    source = torch.Generator().manual_seed(seed)
    shares = torch.randn(length, generator=source, dtype=torch.float64).mul(2).exp()
    caps = torch.rand(length, generator=source, dtype=torch.float64) * 9 + 0.1
    total = share * float(caps.sum())
    found = one(shares, caps, total)
    assert float(torch.minimum(found * shares, caps).sum()) == pytest.approx(total, rel=1e-12)
    assert float(found) == pytest.approx(by_bisection(shares, caps, total), rel=1e-9)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("spread", [3.0, 6.0, 12.0])
def test_shares_of_very_different_sizes(spread: float, several: bool) -> None:
    """The smallest are lost in the sum of all: what is left of it after the larger ones must not be
    a difference.
    """
    source = torch.Generator().manual_seed(0)
    shares = torch.randn(50_000, generator=source, dtype=torch.float64).mul(spread).exp()
    caps = torch.full((50_000 if several else 1,), 2.0, dtype=torch.float64)
    for part in (0.5, 0.64, 0.99):
        found = one(shares, caps, part * 2.0 * len(shares))
        spent = float(torch.minimum(found * shares, caps).sum())
        assert spent == pytest.approx(part * 2.0 * len(shares), rel=1e-12)


@given(
    st.integers(0, 2**31),
    st.integers(1, 40),
    st.floats(0.01, 1.2),
    st.sampled_from([torch.float32, torch.float64]),
    st.booleans(),
)
def test_one_cap_for_all_is_as_many_caps(
    seed: int, length: int, share: float, dtype: torch.dtype, equal: bool
) -> None:
    source = torch.Generator().manual_seed(seed)
    shares = torch.randn(2, length, generator=source).mul(2).exp().to(dtype)
    if equal:
        shares = shares.round() + 1  # many are the same
    counts = torch.rand(2, length, generator=source) < 0.8
    cap = torch.tensor([[7.5]], dtype=torch.float64)
    total = counts.sum(-1).double() * 7.5 * share
    found = common_factor(shares, cap, total, counts)
    each = common_factor(shares, cap.expand(2, length), total, counts)
    torch.testing.assert_close(found, each, rtol=1e-12, atol=0)
    reach = torch.where(counts, torch.minimum(found[:, None] * shares.double(), cap), 0.0)
    wanted = torch.minimum(total, counts.sum(-1) * 7.5)
    torch.testing.assert_close(reach.sum(-1), wanted, rtol=1e-12, atol=0)


def test_gradient() -> None:
    torch.manual_seed(0)
    shares = torch.randn(2, 12, dtype=torch.float64).exp().requires_grad_()
    caps = torch.rand(2, 12, dtype=torch.float64) * 3 + 1
    total = caps.sum(-1) * 0.6
    counts = torch.rand(2, 12) < 0.8

    def reach(x: Tensor) -> Tensor:
        factor = common_factor(x, caps, torch.where(counts, caps, 0.0).sum(-1) * 0.6, counts)
        return torch.minimum(factor[:, None] * x, caps)

    assert total.shape == (2,)
    assert torch.autograd.gradcheck(reach, (shares,))


def test_equal_shares_get_the_same() -> None:
    found = one(torch.full((7,), 3.0), torch.full((7,), 50.0), 7 * 8.0)
    assert float(found) * 3.0 == 8.0


def test_as_much_as_there_is() -> None:
    shares, caps = torch.tensor([1.0, 4.0]), torch.tensor([5.0, 5.0])
    for total in (10.0, 99.0):
        assert torch.equal(torch.minimum(one(shares, caps, total) * shares, caps.double()), caps)


def test_what_does_not_count_changes_nothing() -> None:
    shares, caps = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([9.0, 9.0, 3.0])
    counts = torch.tensor([True, True, True, False, False])
    more = torch.cat([shares, torch.tensor([1e6, 1e-6])])
    wide = torch.cat([caps, torch.tensor([1.0, 1e9])])
    assert torch.equal(one(more, wide, 12.0, counts), one(shares, caps, 12.0))


def test_nothing_counts() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    assert float(one(torch.ones(3), torch.ones(3), 0.0, none)) == 0.0


def test_room() -> None:
    real = torch.tensor([[True, True, True, False], [False, True, True, True]])
    left, right = room(4, real)
    assert left.tolist() == [[0, 1, 2, 3], [0, 0, 1, 2]]
    assert right.tolist() == [[2, 1, 0, 0], [3, 2, 1, 0]]
