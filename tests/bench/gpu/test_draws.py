from __future__ import annotations

import pytest
import torch

from longspan.bench.gpu.draws import THRESHOLD, pairs_of_reach, pairs_of_window, variances
from longspan.bench.reaches import KINDS, Kind
from longspan.measure import Size
from longspan.patterns import Window
from longspan.weights import reach_of

SIZE = Size(batch=2, heads=3, length=2048)
CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_look_84_tokens_far_on_average(kind: Kind) -> None:
    variance = variances(kind, SIZE, CPU)
    assert variance.shape == (2, 3, 2048)
    assert variance.dtype == torch.float32 and variance.requires_grad
    reach = reach_of(variance, THRESHOLD).float()
    assert 82 < reach.mean() < 86
    assert torch.equal(variance, variances(kind, SIZE, CPU))


def test_independent_reaches_are_short_of_125_and_long_tailed_ones_are_not() -> None:
    longest = {kind: int(reach_of(variances(kind, SIZE, CPU), THRESHOLD).max()) for kind in KINDS}
    assert 120 <= longest["independent"] <= 125
    assert longest["long-tailed"] > 400


@pytest.mark.parametrize("reach", [0, 3, 50, 200])
def test_pairs_of_a_window_are_those_of_the_pattern(reach: int) -> None:
    size = Size(batch=2, heads=3, length=60)
    dense = Window(reach, reach).dense(60)
    assert pairs_of_window(size, reach) == 6 * int(dense.sum())


def test_pairs_of_reaches_are_counted_within_the_text() -> None:
    reach = torch.randint(0, 30, (2, 3, 40))
    at = torch.arange(40)
    assert pairs_of_reach(reach) == int(((at[:, None] - at).abs() <= reach[..., None]).sum())
