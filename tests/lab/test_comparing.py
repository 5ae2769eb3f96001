from __future__ import annotations

from typing import Any

import pytest

from longspan.lab import compared, share_better
from longspan.recipes import Planned
from longspan.training import RunConfig, Stage


def done(row: str, seed: int, value: float, **more: Any) -> Any:
    config = RunConfig(task={"name": "recall"}, stages=(Stage(steps=2),), output="runs", seed=seed)
    result = {
        "metric": "bits", "metrics": {"bits": value}, "pairs": 33.0, "tokens_per_second": 10.0,
        "peak_memory": 100 + seed, "seconds": 2.0, "parameters": 7,
    }  # fmt: skip
    return Planned(row=row, config=config), result | more


def test_rows_over_seeds() -> None:
    runs = [done("a", 0, 2.0), done("b", 0, 1.0), done("a", 1, 3.0), done("b", 1, 1.5)]
    first, second = compared(runs, lower_is_better=True)
    assert (first.row, second.row) == ("a", "b")
    assert first.quality.mean == 2.5 and first.quality.deviation == pytest.approx(0.5**0.5)
    assert str(second.quality) == "1.25 ± 0.35"
    assert first.better is None and second.better == 1.0
    assert first.seconds == 4.0 and first.peak_memory == 101 and first.parameters == 7
    assert compared(runs, lower_is_better=False)[1].better == 0.0


def test_one_seed_says_nothing_of_the_spread() -> None:
    first, second = compared([done("a", 0, 2.0), done("b", 0, 1.0)], lower_is_better=True)
    assert first.quality.deviation is None and str(first.quality) == "2.00"
    assert second.better is None


def test_missing_figures_are_left_out() -> None:
    (row,) = compared([done("a", 0, 2.0, pairs=None, peak_memory=None)], lower_is_better=True)
    assert row.pairs is None and row.peak_memory is None


def test_shares_of_draws() -> None:
    assert share_better([1.0, 2.0]) == 1.0 and share_better([0.0, 0.0]) == 0.5
    assert 0.6 < share_better([1.0, 1.0, -1.0]) < 0.9
    assert share_better([1.0, -0.5, 0.2]) == share_better([1.0, -0.5, 0.2])
