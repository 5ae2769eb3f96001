"""Questions about people."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.batch import NOT_COUNTED
from longspan.tasks.birthplaces import Birthplaces, corrupted

TRAIN = "Where was Ann born?\tRome\nWhere was Bo born?\tOslo\nWhere was Cy born?\tRome\n"
DEV = "Where was Di born?\tRome\nWhere was Ed born?\tBern\n"
STORY = "Ann. Ann was born in Rome and lived there.\nBo. Bo, of Oslo, sailed.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "birth_places_train.tsv").write_text(TRAIN)
    (tmp_path / "birth_dev.tsv").write_text(DEV)
    (tmp_path / "wiki.txt").write_text(STORY)
    return tmp_path


def made(data: Path, **settings: Any) -> Birthplaces:
    task = tasks.make("birthplaces", data, **settings)
    assert isinstance(task, Birthplaces)
    return task


def test_the_answer_and_the_mark_after_it_are_asked(folder: Path) -> None:
    task = made(folder)
    batch = task.batch([0, 1], "dev")
    assert "".join(task.texts(batch.tokens[0].tolist())) == "Where was Di born?⁇Rome"
    target = batch.targets["tokens"][0]
    assert "".join(task.texts(target[target != NOT_COUNTED].tolist())) == "Rome⁇"
    # What is asked at a place is the token after it.
    assert (target[:-1] == batch.tokens[0, 1:])[target[:-1] != NOT_COUNTED].all()
    assert batch.target_count() == 10


def test_exact_match_beside_the_most_frequent_place(folder: Path) -> None:
    task = made(folder)
    assert task.most_frequent() == "Rome"
    scores = task.score({0: (10.0, 5, 4), 1: (5.0, 5, 5)})
    assert scores == {"exact_match": 50, "most_frequent": 50, "bits": 1.5}
    read = task.predictions({1: (5.0, 5, 5)})
    assert read == [
        {"question": "Where was Ed born?", "answer": "Bern", "right": True, "bits": 1.0}
    ]
    assert (task.metric, task.lower_is_better) == ("exact_match", False)


def test_a_span_goes_to_the_end_of_its_text() -> None:
    text, source = "abcdefghijklmnopqrstuvwxyz" * 6, random.Random(0)
    shares, lengths = [], set()
    for _ in range(4000):
        prefix, suffix, span, rest = corrupted(text, 128, source).split("⁇")
        whole = prefix + span + suffix
        assert rest == "" and span and text.startswith(whole) and 4 <= len(whole) <= 112
        lengths.add(len(whole))
        shares.append(len(span) / len(whole))
    assert min(lengths) == 4 and max(lengths) == 112
    assert sum(shares) / len(shares) == pytest.approx(0.25, abs=0.01)


def test_pretraining_asks_for_everything_and_draws_anew(folder: Path) -> None:
    task = made(folder, part="pretrain", draws=5, length=32)
    assert (len(task.train), len(task.dev)) == (10, 2)
    assert task.train[0] != task.train[2] and task.train[0] != task.dev[0]
    assert task.train[0] == made(folder, part="pretrain", draws=5, length=32).train[0]
    batch = task.batch(range(10))
    assert batch.tokens.shape[1] <= 32
    assert batch.target_count() == int(batch.real.sum())
    assert (batch.targets["tokens"][0, :3] == batch.tokens[0, 1:4]).all()
    assert task.score({0: (10.0, 5, 4)}) == {"bits": 2.0, "accuracy": 80.0}
    assert (task.metric, task.lower_is_better) == ("bits", True)


def test_both_parts_have_the_same_characters(folder: Path) -> None:
    first, then = made(folder, part="pretrain"), made(folder)
    assert first.characters == then.characters and first.characters.startswith("□⁇")
    assert first.vocabulary == len(first.characters) and first.pad == 0
    assert tasks.from_description(then.describe()).describe() == then.describe()


def test_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    path = folder / "birth_dev.tsv"
    path.write_text("Where was Di born?\tRome\nWhere was Ed born? Bern\n")
    with pytest.raises(ValueError, match=r"birth_dev\.tsv, line 2: no TAB between question and"):
        made(folder)
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"birth_dev\.tsv has no questions"):
        made(folder)
    path.write_text(DEV)
    with pytest.raises(ValueError, match="length must be at least 24 for 'Where was Ann born"):
        made(folder, length=20)
    with pytest.raises(ValueError, match="part must be 'pretrain' or 'finetune'"):
        made(folder, part="both")
    with pytest.raises(ValueError, match=r"has no \.txt file: name the text to pretrain on"):
        made(path, part="pretrain")
    (folder / "wiki.txt").write_bytes(b"ok\n\xff\n")
    with pytest.raises(ValueError, match=r"wiki\.txt, line 2: byte 0xff is not UTF-8"):
        made(folder)
