from __future__ import annotations

import pytest

from longspan.bench.curves import crossover, curve
from longspan.bench.records import Outcome, Sample


def test_a_curve_is_one_contender_at_all_lengths() -> None:
    def outcome(name: str, length: int, seconds: float) -> Outcome:
        sample = Sample(seconds, seconds, seconds, 1)
        return Outcome(problem="p", name=f"{name}, N={length}", length=length, forward=sample)

    outcomes = [outcome("a", 8, 3.0), outcome("a", 4, 2.0), outcome("b", 4, 1.0)]
    assert curve(outcomes, "a", "forward") == {4: 2.0, 8: 3.0}
    assert curve(outcomes, "a", "both") == {}


def test_curves_cross_between_lengths() -> None:
    # Ours is twice as slow at 64 and twice as fast at 256: equal half-way, in logarithms.
    ours = {64: 2.0, 256: 4.0, 1024: 16.0}
    dense = {64: 1.0, 256: 8.0, 1024: 128.0}
    assert crossover(ours, dense) == pytest.approx(128)


def test_the_last_crossing_counts() -> None:
    ours = {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}
    dense = {1: 2.0, 2: 0.5, 4: 2.0, 8: 2.0}
    assert crossover(ours, dense) == pytest.approx(2 * 2**0.5)


def test_always_faster_and_never() -> None:
    assert crossover({4: 1.0, 8: 1.0}, {4: 2.0, 8: 2.0}) == 4
    assert crossover({4: 2.0, 8: 2.0}, {4: 1.0, 8: 1.0}) is None
    assert crossover({4: 1.0}, {8: 2.0}) is None
