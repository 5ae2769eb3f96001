"""The generated task."""

from __future__ import annotations

import pytest

from longspan import tasks
from longspan.tasks.recall import Recall


def test_the_answer_lies_at_its_distance_and_nowhere_else() -> None:
    task = Recall(distance=5, length=12, vocabulary=4, examples=30)
    batch = task.batch(range(30))
    assert batch.tokens.shape == (30, 12) and batch.target_count() == 30
    values = (batch.tokens >= 2) & (batch.tokens < 6)
    assert values.sum(1).tolist() == [1] * 30
    assert values[:, 6].all()
    assert (batch.targets["tokens"][:, -1] == batch.tokens[:, 6]).all()
    assert (batch.tokens[:, -1] == 1).all() and int(batch.tokens.max()) < task.vocabulary
    assert len(set(batch.targets["tokens"][:, -1].tolist())) == 4


def test_an_example_follows_from_seed_split_and_number() -> None:
    first, again, other = Recall(seed=1), Recall(seed=1), Recall(seed=2)
    assert first.train[7] == again.train[7]
    assert first.train[7] != other.train[7]
    assert first.train[7] != first.dev[7]
    assert first.train[7] != first.train[8]


def test_its_scores() -> None:
    task = Recall(distance=2, length=4)
    outputs = {0: (1.0, 1, 1), 3: (3.0, 1, 0)}
    assert task.score(outputs) == {"accuracy": 50.0, "bits": 2.0}
    read = task.predictions(outputs)
    assert [(r["number"], r["right"]) for r in read] == [(0, True), (3, False)]
    assert task.texts([0, 1, 2, 18]) == ["_", "?", "=0", "a"]


def test_it_is_described_and_made_again() -> None:
    task = tasks.make("recall", distance=9, length=20, seed=4)
    again = tasks.from_description(task.describe())
    assert again.train[3] == task.train[3]
    assert again.describe() == task.describe()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "x"}, "recall is generated and reads no data"),
        ({"distance": 8, "length": 8}, "length must be at least distance \\+ 1 = 9, got 8"),
        ({"distance": 0}, "recall: distance must be at least 1"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.make("recall", **settings)  # type: ignore[arg-type]
