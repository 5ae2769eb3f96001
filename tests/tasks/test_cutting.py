"""Nothing is cut, left out or kept for measuring without a word."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from longspan import tasks
from longspan.tasks.task import apart

pytest.importorskip("tokenizers")

LONG = " ".join(["word"] * 60)


def test_long_texts_of_classify(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    lines = [f"{LONG if n < 3 else 'short'}\t{'ab'[n % 2]}\n" for n in range(20)]
    path.write_text("text\tlabel\n" + "".join(lines))
    with pytest.warns(UserWarning, match="3 of 18 texts have more tokens than length=32 leaves"):
        task = tasks.make("classify", path, length=32, vocabulary=300, cache=tmp_path / "cache")
    assert len(task.train[0].tokens) == 32
    counts = [[int(n) for n in re.findall(r"' (\d+)", line)] for line in task.summary()]
    assert [sum(own) for own in zip(*counts, strict=True)] == [10, 10]
    reader = task.input_reader
    assert reader is not None
    with pytest.warns(UserWarning, match="1 of 2 texts have more tokens"):
        reader.inputs([{"text": LONG}, {"text": "short"}])


def test_long_texts_of_translate(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"ja {n}\t{LONG if n == 0 else 'yes'}\n" for n in range(9)))
    with pytest.warns(UserWarning, match="translate: 1 of 16 texts have more tokens"):
        tasks.make("translate", path, length=16, vocabulary=300, cache=tmp_path / "cache")


def test_long_questions(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    own = [{"question": LONG if n < 2 else "Who?", "context": f"{n} Ada", "answer": "Ada"}
           for n in range(12)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in own))
    with pytest.warns(UserWarning, match="2 of 11 questions have more .* question_length=12"):
        tasks.make(
            "squad", path, length=48, question_length=12, vocabulary=300, cache=tmp_path / "cache"
        )


def test_a_class_that_nothing_teaches(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "one\tx\ntwo\ty\n" * 3)
    (tmp_path / "dev.tsv").write_text("text\tlabel\none\tx\nthree\tz\n")
    with pytest.warns(UserWarning, match="nothing to learn from is of class 'z'"):
        task = tasks.make("classify", tmp_path, vocabulary=300, cache=tmp_path / "cache")
    assert task.summary() == ["train: 'x' 3, 'y' 3, 'z' 0", "dev: 'x' 1, 'y' 0, 'z' 1"]


@pytest.mark.parametrize("period", [2, 3, 5, 10])
def test_classes_that_take_turns_are_all_kept_for_measuring(period: int) -> None:
    examples = [n % period for n in range(1000)]
    learn, measure = apart(examples, "here")
    assert (len(learn), len(measure)) == (900, 100)
    assert {*measure} == {*range(period)}
    # The same ones every time, one of every ten.
    again, kept = apart(range(1000), "here")
    assert [examples[n] for n in kept] == measure
    assert sorted({*again, *kept}) == [*range(1000)] and [n // 10 for n in kept] == [*range(100)]


def test_few_examples() -> None:
    assert apart("abc", "here") == (["a", "b"], ["c"])
    with pytest.raises(ValueError, match="here has one example alone"):
        apart("a", "here")
