"""Reaches become integers once, and are right at the edges."""

from __future__ import annotations

import pytest
import torch

import longspan as ls
from longspan.functional.reach import integer_reach
from longspan.weights import Alibi, Bell, Ramp, variance_of

CPU = torch.device("cpu")


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.6, 0.99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bell_at_whole_numbers(threshold: float, dtype: torch.dtype) -> None:
    want = torch.arange(1, 5000)
    variance = variance_of(want.double(), threshold).to(dtype)
    found = integer_reach(Bell(variance[None, None], threshold=threshold), CPU)
    assert found is not None and found.dtype == torch.int32
    assert torch.equal(found[0, 0].long(), want)


def test_cap_changes_the_cut_alone() -> None:
    variance = variance_of(torch.tensor([3.0, 30.0, 300.0]), 0.5)
    found = integer_reach(Bell(variance, threshold=0.5, max_reach=30), CPU)
    assert found is not None and found.flatten().tolist() == [3, 30, 30]
    q, k, _ = (torch.randn(1, 1, 9, 4) for _ in range(3))
    capped = ls.attention_map(q, k, weight=Bell(50.0, threshold=0.5, max_reach=2))
    soft = ls.attention_map(q, k, weight=Bell(50.0))
    inside = capped != 0
    share = torch.where(inside, soft, 0)
    torch.testing.assert_close(capped, share / share.sum(-1, keepdim=True))


def test_cap_cuts_alone() -> None:
    found = integer_reach(Bell(torch.ones(2, 3, 4), max_reach=7), CPU)
    assert found is not None and found.flatten().tolist() == [7]
    assert integer_reach(Bell(torch.ones(2, 3, 4)), CPU) is None
    assert integer_reach(Alibi(torch.ones(2)), CPU) is None


def test_ramp_is_the_last_distance_above_zero() -> None:
    span = torch.tensor([0.0, 1.0, 1.5, 7.0, -1.0, -3.0, -9.0])
    found = integer_reach(Ramp(span, 3.0), CPU)
    assert found is not None
    for z, reach in zip(span.tolist(), found.flatten().tolist(), strict=True):
        heights = [min(max((3.0 + z - d) / 3.0, 0), 1) for d in range(20)]
        assert reach == max((d for d, m in enumerate(heights) if m > 0), default=-1), z


def test_no_gradient() -> None:
    variance = torch.full((1, 1, 4), 9.0, requires_grad=True)
    found = integer_reach(Bell(variance, threshold=0.5), CPU)
    assert found is not None and not found.requires_grad


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("reach", [0, 1, 2, 63, 64, 65, 127, 128])
def test_every_backend_takes_those_integers(backend: ls.functional.Backend, reach: int) -> None:
    """With equal scores and a wide bell, a row's output counts the keys it saw."""
    n = 300
    q = torch.zeros(1, 1, n, 4)
    v = torch.eye(n)[None, None]
    bell = Bell(variance_of(float(reach), 0.5) if reach else 0.1, threshold=0.5)
    y = ls.attention(q, q, v, weight=bell, backend=backend)
    seen = (torch.arange(n) - torch.arange(n)[:, None]).abs() <= reach
    assert torch.equal(y[0, 0] > 0, seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_number_is_pythons_whatever_the_default_dtype(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for reach in (5, 100, 512, 40_000):
            bell = Bell(variance_of(reach, 0.5), threshold=0.5)
            found = integer_reach(bell, torch.device("cpu"))
            assert found is not None and found.item() == reach
    finally:
        torch.set_default_dtype(before)
