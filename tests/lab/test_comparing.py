from __future__ import annotations

import math
from typing import Any

import pytest

from longspan.lab import compared, share_better
from longspan.lab.table import as_markdown
from longspan.recipes import Planned
from longspan.training import RunConfig, Stage


def done(row: str, seed: int, value: float, mechanism: Any = None, **more: Any) -> Any:
    config = RunConfig(
        task={"name": "recall"}, stages=(Stage(steps=2),), output="runs", seed=seed,
        mechanism=mechanism,
    )  # fmt: skip
    result = {
        "metric": "bits", "metrics": {"bits": value}, "pairs": 33.0, "tokens_per_second": 10.0,
        "peak_memory": 100 + seed, "seconds": 2.0, "parameters": 7,
    }  # fmt: skip
    published = more.pop("published", None)
    return Planned(row=row, config=config, published=published), result | more


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


def test_tables_have_the_columns_that_rows_have() -> None:
    learned: dict[str, Any] = {"kind": "LearnedWindow", "mean_reach": 16}
    fixed = {"kind": "SlidingWindow", "left": [8, 16]}
    more: dict[str, Any] = {"also": ["words"], "metrics": {"bits": 2.0, "words": 30.0}}
    text = as_markdown(
        [
            done("full", 0, 2.0, **more),
            done("fixed", 0, 2.0, fixed, published="1.5", **more),
            done("learned", 0, 2.0, learned, mean_reach=14.26, **more),
        ]
    )
    names, _, full, *others = (line.strip("| ").split(" | ") for line in text.splitlines())
    assert names == [
        "bits", "words", "published", "reach, asked and actual", "pairs", "tokens/s", "memory",
        "seconds",
    ]  # fmt: skip
    assert full == ["full", "2.00", "30.00", "", "—", "33", "10", "0 MiB", "2"]
    assert [(own[3], own[4]) for own in others] == [("1.5", "12"), ("", "16, 14.3")]


def test_a_measure_that_some_rows_do_not_have() -> None:
    """Records of an earlier version do not say what else to show, or have not measured it."""
    more: dict[str, Any] = {"also": ["words"], "metrics": {"bits": 2.0, "words": 30.0}}
    both = {"metrics": {"bits": 2.0, "words": 20.0}}
    runs = [done("a", 0, 2.0), done("b", 0, 2.0, **both), done("c", 0, 2.0, **more)]
    lines = [line.split(" | ") for line in as_markdown(runs).splitlines()]
    assert lines[0][2] == "words" and [own[2] for own in lines[2:]] == ["—", "20.00", "30.00"]


def test_shares_of_draws() -> None:
    assert share_better([1.0, 2.0]) == 1.0 and share_better([0.0, 0.0]) == 0.5
    assert 0.6 < share_better([1.0, 1.0, -1.0]) < 0.9
    assert share_better([1.0, -0.5, 0.2]) == share_better([1.0, -0.5, 0.2])
    # Ties that rounding has parted.
    assert share_better([0.1, 0.2, -0.3]) == share_better([1.0, 2.0, -3.0])


def test_a_run_that_came_to_nothing_is_in_the_table() -> None:
    """JSON has no NaN."""
    lost = done("b", 0, 1.0)
    lost[1]["metrics"]["bits"] = None
    assert math.isnan(compared([done("a", 0, 2.0), lost], lower_is_better=True)[1].quality.mean)
    assert "| b | nan |" in as_markdown([done("a", 0, 2.0), lost])


def test_one_seed_that_came_to_nothing() -> None:
    runs = [done(row, seed, 2.0) for row in ("a", "b") for seed in (0, 1, 2)]
    for _, result in runs:
        result["also"], result["metrics"]["words"] = ["words"], 3.0
    runs[4][1]["metrics"] = {"bits": None, "words": None}
    first, lost = compared(runs, lower_is_better=True)
    assert str(first.quality) == "2.00 ± 0.00" and str(lost.quality) == "nan"
    assert str(lost.also["words"]) == "nan" and lost.better is None
    assert "| b | nan | nan |" in as_markdown(runs)
    # Nor is anything said to be better than it.
    assert compared(runs[3:] + runs[:3], lower_is_better=True)[1].better is None
