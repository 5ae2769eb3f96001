"""Between a variance and a reach: exact for every whole number of tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from longspan.weights import reach_of, variance_of

THRESHOLDS = [1e-6, 0.01, 0.1, 0.5, 0.6, 0.9, 0.999]
every_threshold = pytest.mark.parametrize("threshold", THRESHOLDS)
REACHES = torch.arange(1, 30001)


def test_figures_of_the_reports() -> None:
    assert variance_of(128, 0.5) == pytest.approx(11818.6, abs=0.05)
    assert variance_of(128, 0.6) == pytest.approx(16036.8, abs=0.05)
    assert reach_of(variance_of(128, 0.5), 0.5) == 128
    assert reach_of(variance_of(128, 0.6), 0.6) == 128
    assert reach_of(16036.0, 0.6) == 127


@every_threshold
def test_every_whole_reach_comes_back(threshold: float) -> None:
    variance = variance_of(REACHES, threshold)
    assert variance.dtype == torch.float64
    assert torch.equal(reach_of(variance, threshold).long(), REACHES)


@every_threshold
def test_every_whole_reach_comes_back_through_float32(threshold: float) -> None:
    variance = variance_of(REACHES, threshold).float()
    assert torch.equal(reach_of(variance, threshold).long(), REACHES)


@every_threshold
def test_every_whole_reach_comes_back_when_all_is_float32(threshold: float) -> None:
    """As a model has it: a reach in float32, from which a variance in float32 is made."""
    variance = variance_of(REACHES.float(), threshold)
    assert variance.dtype == torch.float32
    found = reach_of(variance, threshold).long()
    wrong = (found != REACHES).nonzero()[:, 0]
    assert len(wrong) == 0, f"{len(wrong)} reaches differ, the first is {REACHES[wrong[0]]}"


@every_threshold
def test_every_whole_reach_comes_back_as_a_number(threshold: float) -> None:
    for reach in range(1, 30001):
        found = reach_of(variance_of(reach, threshold), threshold)
        assert found == reach
    assert type(found) is int


@every_threshold
def test_numbers_and_tensors_agree(threshold: float) -> None:
    variances = torch.logspace(-6, 9, 500, dtype=torch.float64)
    found = reach_of(variances, threshold)
    assert found.dtype == torch.int32
    assert found.tolist() == [reach_of(v, threshold) for v in variances.tolist()]


@every_threshold
def test_the_curve_is_at_the_threshold_at_its_reach(threshold: float) -> None:
    """U(reach) ≥ threshold > U(reach + 1), but for the slack of a thousandth of a token."""
    for variance in torch.logspace(-2, 8, 200, dtype=torch.float64).tolist():
        reach = reach_of(variance, threshold)
        inside, outside = max(reach - 1e-3, 0), reach + 1 - 1e-3
        assert math.exp(-(inside**2) / (2 * variance)) >= threshold * (1 - 1e-12)
        assert math.exp(-(outside**2) / (2 * variance)) < threshold * (1 + 1e-12)


@pytest.mark.parametrize("reach", [1, 2, 17, 128, 4000])
@every_threshold
def test_between_whole_numbers_it_is_the_lower(reach: int, threshold: float) -> None:
    assert reach_of(variance_of(reach + 0.99, threshold), threshold) == reach
    assert reach_of(variance_of(reach + 0.5, threshold), threshold) == reach
    assert reach_of(variance_of(reach - 0.01, threshold), threshold) == reach - 1
    assert reach_of(variance_of(reach - 1e-4, threshold), threshold) == reach


def test_ends() -> None:
    assert reach_of(1e-30, 0.5) == 0
    found = reach_of(torch.tensor([1e-30, 0.0, -4.0, math.nan, math.inf]), 0.5)
    assert found.tolist() == [0, 0, 0, 0, 2**30]
    assert reach_of(math.inf, 0.5) == 2**30


def test_a_variance_learns_through_its_reach() -> None:
    reach = torch.tensor([3.0, 7.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: variance_of(r, 0.5), reach)


def test_a_reach_has_no_gradient() -> None:
    variance = torch.tensor([9.5], requires_grad=True)
    assert not reach_of(variance, 0.5).requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
def test_any_dtype_is_read_in_float64(dtype: torch.dtype) -> None:
    variance = torch.tensor([1, 10, 300]).to(dtype)
    assert reach_of(variance, 0.5).tolist() == [1, 3, 20]
    assert reach_of(variance.reshape(3, 1, 1), 0.5).shape == (3, 1, 1)


@pytest.mark.parametrize("function", [reach_of, variance_of])
@pytest.mark.parametrize(
    ("threshold", "error"),
    [
        (0.0, ValueError),
        (1.0, ValueError),
        (-0.5, ValueError),
        (1.5, ValueError),
        (math.nan, ValueError),
        (0, ValueError),
        (True, TypeError),
        (None, TypeError),
        ("0.5", TypeError),
        (torch.tensor(0.5), TypeError),
    ],
)
def test_bad_thresholds(function: Any, threshold: Any, error: type[Exception]) -> None:
    for value in (9.5, torch.tensor([9.5])):
        with pytest.raises(error, match=f"{function.__name__}: threshold"):
            function(value, threshold)


@pytest.mark.parametrize(
    ("variance", "error"),
    [
        (0.0, ValueError),
        (-1, ValueError),
        (math.nan, ValueError),
        (True, TypeError),
        (None, TypeError),
        ("1", TypeError),
        (torch.tensor([True]), TypeError),
        (torch.tensor([1j]), TypeError),
    ],
)
def test_bad_variances(variance: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="reach_of: variance"):
        reach_of(variance, 0.5)


@pytest.mark.parametrize(
    ("reach", "error"),
    [
        (-1, ValueError),
        (-0.5, ValueError),
        (math.nan, ValueError),
        (True, TypeError),
        (None, TypeError),
        ("1", TypeError),
        (torch.tensor([True]), TypeError),
        (torch.tensor([1j]), TypeError),
    ],
)
def test_bad_reaches(reach: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="variance_of: reach"):
        variance_of(reach, 0.5)
