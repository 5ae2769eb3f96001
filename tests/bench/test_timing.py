from __future__ import annotations

from longspan.bench.records import Sample
from longspan.bench.timing import Effort, interleaved


def test_a_sample_is_given_by_its_median() -> None:
    assert Sample.of([5.0, 1.0, 2.0]) == Sample(2.0, 1.0, 5.0, 3)
    assert Sample.of([1.0, 2.0]).median == 1.5


def test_calls_take_turns_after_one_that_is_not_counted() -> None:
    turns: list[str] = []
    calls = {name: lambda: None for name in "ab"}
    effort = Effort(rounds=2, least=2, seconds=0)
    found = interleaved(calls, effort, on_turn=turns.append)
    assert turns == ["a", "b"] * 3
    assert {name: sample.rounds for name, sample in found.items()} == {"a": 2, "b": 2}


def test_rounds_end_with_the_time() -> None:
    found = interleaved({"a": lambda: None}, Effort(rounds=50, least=4, seconds=0), wall=True)
    assert found["a"].rounds == 4


def test_long_calls_have_fewer_rounds() -> None:
    effort = Effort(rounds=3, least=3, long=-1.0)
    assert interleaved({"a": lambda: None}, effort)["a"].rounds == 1
