from __future__ import annotations

import pytest
import torch

from longspan.bench.reaches import FAR_SHARE, KINDS, Kind, reaches


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mean", [8.0, 84.0])
def test_every_head_has_the_mean(kind: Kind, mean: float) -> None:
    found = reaches(kind, 3, 4096, mean=mean)
    assert found.shape == (1, 3, 4096)
    assert found.dtype == torch.float32
    assert found.min() >= 1
    torch.testing.assert_close(found.mean(-1), torch.full((1, 3), mean), rtol=0.03, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_every_time_and_another_for_another_seed(kind: Kind) -> None:
    assert torch.equal(reaches(kind, 2, 300), reaches(kind, 2, 300))
    assert not torch.equal(reaches(kind, 2, 300), reaches(kind, 2, 300, seed=1))
    one, two = reaches(kind, 2, 300)[0]
    assert not torch.equal(one, two)


def test_torch_s_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    reaches("smooth", 2, 300)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_in_ten_of_the_long_tailed_looks_far() -> None:
    found = reaches("long-tailed", 4, 2000)
    # The near ones look between 0.5 and 1.5 times as far as they do on average, the far ones at
    # least 4 times.
    near = found.median(-1, keepdim=True).values
    assert ((found > 3 * near).float().mean(-1) == FAR_SHARE).all()


def test_independent_reaches_stay_near_their_mean() -> None:
    found = reaches("independent", 2, 4096)
    assert found.min() >= 0.48 * 84
    assert found.max() <= 1.52 * 84


def test_smooth_reaches_hardly_change_from_token_to_token() -> None:
    steps = {kind: reaches(kind, 2, 4096).diff().abs().mean() for kind in KINDS}
    assert steps["smooth"] < 0.02 * 84
    assert steps["smooth"] < 0.05 * steps["independent"]
    assert reaches("smooth", 2, 4096).std() > 0.2 * 84


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_short_texts(kind: Kind, length: int) -> None:
    found = reaches(kind, 2, length)
    assert found.shape == (1, 2, length)
    assert found.isfinite().all()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="kind must be one of smooth, independent, long-tailed"):
        reaches("wild", 1, 9)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean must be at least 2"):
        reaches("smooth", 1, 9, mean=0)
