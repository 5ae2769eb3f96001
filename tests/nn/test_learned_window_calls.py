"""Unusual calls of a learned window: nothing to look at, lengths and reaches that change, numbers
at the end of their range, transforms and exports.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import LearnedWindow, MultiheadAttention, Setting, pool_budgets


@pytest.mark.parametrize("reach", [40, 0, -3, math.nan])
def test_a_reach_that_is_changed_is_checked_as_a_first_one(reach: float) -> None:
    window = LearnedWindow(8, 2, mean_reach=4, max_reach=16)
    q = torch.randn(1, 2, 9, 4)
    window.mean_reach = reach
    with pytest.raises(ValueError, match="mean_reach must be above 0 and at most max_reach, got"):
        window(q, q, q)
    window.max_reach = 64
    window.mean_reach = 40
    assert window(q, q, q).shape == q.shape


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
def test_an_empty_sequence(budget: Any) -> None:
    window = LearnedWindow(8, 2, mean_reach=4, max_reach=16, budget=budget)
    q = torch.randn(2, 2, 0, 4, requires_grad=True)
    y = window(q, q, q)
    assert y.shape == q.shape
    y.sum().backward()


def test_heads_that_are_not_its_own() -> None:
    q = torch.randn(1, 3, 9, 4)
    with pytest.raises(ValueError, match="q must have 2 heads, got a float32 tensor of shape"):
        LearnedWindow(8, 2, mean_reach=4)(q, q, q)


def test_exports_for_lengths_up_to_any() -> None:
    layer = MultiheadAttention(8, 2, LearnedWindow(8, 2, mean_reach=4, max_reach=8)).eval()
    length = torch.export.Dim("n", min=2, max=4096)
    whole = torch.export.export(layer, (torch.randn(2, 64, 8),), dynamic_shapes=({1: length},))
    x = torch.randn(2, 1500, 8)
    torch.testing.assert_close(whole.module()(x), layer(x))


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs"])
def test_shares_that_are_worlds_apart_have_finite_gradients(budget: Any) -> None:
    """The factor that gives the smallest their cap makes reaches of the largest that float32 does
    not hold.
    """
    window = LearnedWindow(16, 4, mean_reach=6, max_reach=8, biased=True, budget=budget)
    assert window.b_d is not None
    with torch.no_grad():
        window.b_d.copy_(torch.tensor([-1.0, -1.0, 1.0, 1.0]) * 47.5)
    q = torch.randn(1, 4, 40, 4, requires_grad=True)
    y = window(q, q, q)
    y.sum().backward()
    assert y.isfinite().all()
    for own in (*window.parameters(), q):
        assert own.grad is not None and own.grad.isfinite().all()


def test_transforms_leave_nothing_behind() -> None:
    layer = MultiheadAttention(8, 2, LearnedWindow(8, 2, mean_reach=2, max_reach=4))
    x = torch.randn(2, 9, 8)
    layer(x)
    before = layer.mechanism.last_reach

    def total(own: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, own, (x,)).sum()

    torch.func.grad(total)(dict(layer.named_parameters()))
    torch.func.vmap(lambda own: layer(own[None]))(x)
    assert layer.mechanism.last_reach is before
    deepcopy(layer)


def test_a_pool_keeps_its_factor_when_its_first_window_goes() -> None:
    windows = [LearnedWindow(8, 2, mean_reach=2, max_reach=6, pooled=True) for _ in range(3)]
    pool_budgets(windows)
    windows[0].factor.fill_(2.5)
    pool_budgets(windows[1:])
    assert windows[1].factor == 2.5 and windows[2]._pool[0] is windows[1]


def test_more_queries_than_keys_with_padding() -> None:
    """Queries before the first key are real, and look at what their reach allows."""
    layer = MultiheadAttention(8, 2, LearnedWindow(8, 2, mean_reach=3, max_reach=6))
    x, memory = torch.randn(2, 9, 8), torch.randn(2, 5, 8)
    real = torch.ones(2, 5, dtype=torch.bool)
    torch.testing.assert_close(layer(x, memory, key_padding=real), layer(x, memory))
    real[1, 3:] = False
    assert layer(x, memory, key_padding=real).isfinite().all()


@pytest.mark.parametrize("budget", ["reach", "variance", "pairs", None])
def test_an_empty_batch(budget: Any) -> None:
    start = 4.0 if budget is None else None
    window = LearnedWindow(8, 2, mean_reach=3, max_reach=6, budget=budget, initial_variance=start)
    assert MultiheadAttention(8, 2, window)(torch.randn(0, 5, 8)).shape == (0, 5, 8)


def test_nothing_but_shapes() -> None:
    """On the meta device, where there is no autocast to turn off."""
    with torch.device("meta"):
        for options in ({}, {"reads": "stream"}):
            window = LearnedWindow(32, 4, mean_reach=2, max_reach=4, **options)
            layer = MultiheadAttention(32, 4, window)
            assert layer(torch.randn(2, 33, 32)).shape == (2, 33, 32)


def test_no_queries_with_padding() -> None:
    window = LearnedWindow(32, 4, mean_reach=2, max_reach=4)
    q, k = torch.randn(2, 4, 0, 8), torch.randn(2, 4, 7, 8)
    real = torch.ones(2, 7, dtype=torch.bool)
    assert window(q, k, k, Setting(key_padding=real)).shape == (2, 4, 0, 8)


@pytest.mark.parametrize("mask", ["key_padding", "global_tokens"])
def test_masks_are_bool(mask: str) -> None:
    """Numbers would be taken for places."""
    window, q = LearnedWindow(32, 4, mean_reach=2, max_reach=4), torch.randn(1, 4, 5, 8)
    given = Setting()._replace(**{mask: torch.tensor([[1, 0, 0, 0, 0]])})
    with pytest.raises(TypeError, match=f"{mask} must be a bool tensor"):
        window(q, q, q, given)


def test_a_threshold_that_was_changed_is_another_reach() -> None:
    """As of a window that is made with it."""
    options: Any = {"max_reach": 60, "budget": None, "initial_variance": 4.0}
    changed, made = LearnedWindow(32, 4, **options), LearnedWindow(32, 4, threshold=0.1, **options)
    changed.threshold = 0.1
    q = torch.randn(1, 4, 9, 8)
    for window in (changed, made):
        window(q, q, q)
    assert changed.last_reach is not None and made.last_reach is not None
    assert torch.equal(changed.last_reach, made.last_reach)


def test_load_reach_from_a_network_that_is_shared_otherwise() -> None:
    made = LearnedWindow(32, 4, mean_reach=2, max_reach=4)
    other = LearnedWindow(32, 4, mean_reach=2, max_reach=4, shared="tokens")
    with pytest.raises(ValueError, match="must have shared=None as this window has, got 'tokens'"):
        made.load_reach(other)
