"""The tests' own safety nets."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_memory_that_nobody_wrote_is_nan(dtype: torch.dtype) -> None:
    like = torch.zeros(3, dtype=dtype)
    for made in (
        torch.empty(3, dtype=dtype),
        torch.empty_like(like),
        like.new_empty(3),
        torch.empty_strided((3,), (1,), dtype=dtype),
    ):
        assert made.isnan().all()


def test_integers_that_nobody_wrote_are_far_out_of_range() -> None:
    assert (torch.empty(3, dtype=torch.int64) == torch.iinfo(torch.int64).max).all()


def test_the_poison_can_be_taken_off(any_order: None) -> None:
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("_", range(2))
def test_every_test_starts_from_one_seed(_: int) -> None:
    assert (
        torch.rand(()).item() == torch.rand((), generator=torch.Generator().manual_seed(0)).item()
    )
