"""How sure a model has to be that a text does not tell: chosen on articles that are held for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.squad import Squad

pytest.importorskip("tokenizers")

PLACES = ("Oslo", "Rome", "Cork", "Graz", "Nice", "Ulm", "Bern", "Lyon", "Bari", "Kiel", "Pisa")


def articles(count: int, *, paragraphs: int = 3) -> list[dict[str, Any]]:
    """In every paragraph somebody lives somewhere."""
    found = []
    for article in range(count):
        texts = []
        for number in range(paragraphs):
            name, place = f"Ada{article}x{number}", PLACES[(article + number) % len(PLACES)]
            text = f"{name} lives in {place}, by the sea, and has done so for years."
            answer = {"text": place, "answer_start": text.index(place)}
            asked = {"id": name, "question": f"Where does {name} live?", "answers": [answer]}
            texts.append({"context": text, "qas": [asked]})
        found.append({"title": str(article), "paragraphs": texts})
    return found


def written(path: Path, data: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    return path


def made(folder: Path, count: int = 10, **settings: Any) -> Squad:
    data = written(folder / "train.json", articles(count))
    own = {"length": 48, "question_length": 16, "vocabulary": 300, "mismatched": 1.0}
    task = tasks.make("squad", data, cache=folder / "cache", **{**own, **settings})
    assert isinstance(task, Squad)
    return task


def ids(task: Squad, split: str) -> set[str]:
    windows = task.examples(split)
    return {windows.question_of(n).id.split("x")[0] for n in range(len(windows))}  # type: ignore[attr-defined]


def test_articles_are_learned_from_measured_on_or_held(tmp_path: Path) -> None:
    task = made(tmp_path, 20, no_answer="chosen")
    assert ids(task, "dev") == {"Ada18", "Ada19"}
    assert ids(task, "held") == {"Ada17"}
    assert ids(task, "train") == {f"Ada{n}" for n in range(17)}


def test_a_file_to_be_measured_on_leaves_the_last_to_be_held(tmp_path: Path) -> None:
    dev = written(tmp_path / "measured.json", articles(1))
    task = made(tmp_path, no_answer="chosen", dev=dev)
    assert ids(task, "held") == {"Ada9"} and len(ids(task, "train")) == 9
    assert made(tmp_path, dev=dev).held is None


def test_the_best_is_chosen(tmp_path: Path) -> None:
    """Answers are right, and "no answer" scores 3 above them where there is none, 1 elsewhere."""
    task = made(tmp_path, no_answer="chosen")
    held: Any = task.examples("held")
    outputs = {}
    for number in range(len(held)):
        targets = task.batch([number], "held").targets
        known = held.question_of(number).answerable
        first, last = int(targets["start"][0]), int(targets["end"][0])
        span = (first, last, 0.0) if known else (20, 21, 0.0)
        outputs[number] = [(0, 0, 1.0 if known else 3.0), span]
    chosen = task.choose(outputs)
    assert chosen == {"no_answer": 1.0}
    assert task.score(outputs, "held")["f1"] == 50
    task.take(chosen)
    assert task.score(outputs, "held")["f1"] == 100


def test_there_must_be_something_to_choose_by(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"questions without an answer.*mismatched=0\.5"):
        made(tmp_path, no_answer="chosen", mismatched=0.0)
    with pytest.raises(ValueError, match="no_answer must be a number or 'chosen', got str 'best'"):
        made(tmp_path, no_answer="best")


def test_it_is_made_again(tmp_path: Path) -> None:
    task = made(tmp_path, no_answer="chosen")
    again = tasks.from_description(task.describe(), cache=tmp_path / "cache")
    assert again.held is not None and task.held is not None
    assert len(again.held) == len(task.held)


def test_one_text_alone_is_not_enough(tmp_path: Path) -> None:
    dev = written(tmp_path / "measured.json", articles(1))
    with pytest.raises(ValueError, match="one text alone: there is none to choose no_answer by"):
        made(tmp_path, 1, no_answer="chosen", dev=dev)
    with pytest.raises(ValueError, match="one text alone: name a file to be measured on with dev="):
        made(tmp_path, 1, no_answer="chosen")
