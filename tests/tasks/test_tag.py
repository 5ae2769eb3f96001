"""A tag for every word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.batch import NOT_COUNTED
from longspan.tasks.tag import Tag

pytest.importorskip("tokenizers")
pytest.importorskip("seqeval")

TEXT = """-DOCSTART- -X- O O

Angela NNP I-NP B-PER
Merkel NNP I-NP I-PER
visited VBD I-VP O
Paris NNP I-NP B-LOC
. . O O

She PRP I-NP O
left VBD I-VP O

-DOCSTART- -X- O O

Berlin NNP I-NP B-LOC
slept VBD I-VP O
"""


def made(data: Path, **settings: Any) -> Tag:
    cache = (data if data.is_dir() else data.parent) / "cache"
    sizes = {"length": 64, "vocabulary": 262}
    task = tasks.make("tag", data, cache=cache, **{**sizes, **settings})
    assert isinstance(task, Tag)
    return task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "eng.train").write_text(TEXT)
    (tmp_path / "eng.testa").write_text(TEXT)
    return tmp_path


def right(task: Tag, number: int) -> list[int]:
    """The right tags as a model gives them: one for every token, of which most are not asked."""
    tags = task.batch([number], "dev").targets["tags"][0]
    return [3 if tag == NOT_COUNTED else tag for tag in tags.tolist()]


def said(task: Tag, number: int, tags: list[int]) -> list[int]:
    """These tags at the words' first tokens, and some other tag elsewhere."""
    asked = task.batch([number], "dev").targets["tags"][0] != NOT_COUNTED
    own = iter(tags)
    return [next(own) if first else 2 for first in asked.tolist()]


def test_a_word_is_asked_at_its_first_token(folder: Path) -> None:
    task = made(folder)
    assert task.labels == ["B-LOC", "B-PER", "I-PER", "O"]
    assert len(task.dev) == 3
    batch = task.batch([0], "dev")
    words = task.texts(batch.tokens[0].tolist())
    assert words[0] == "[CLS]" and words[-1] == "[SEP]" and len(words) > 8
    tags = batch.targets["tags"][0].tolist()
    asked = [words[n] for n, tag in enumerate(tags) if tag != NOT_COUNTED]
    assert all(word.startswith(" ") for word in asked)
    assert [tag for tag in tags if tag != NOT_COUNTED] == [1, 2, 3, 0, 3]
    assert batch.target_count() == 5


def test_whole_documents(folder: Path) -> None:
    task = made(folder, by="document")
    assert len(task.dev) == 2 and task.batch([0], "dev").target_count() == 7


def test_right_tags_score_full_marks_also_in_pieces(folder: Path) -> None:
    for length in (64, 20):
        task = made(folder, by="document", length=length)
        outputs = {n: right(task, n) for n in range(len(task.dev))}
        assert len(outputs) == 2 if length == 64 else len(outputs) > 3
        assert task.batch(list(outputs), "dev").tokens.shape[1] <= length
        scores = task.score(outputs)
        assert scores == {"span_f1": 100, "precision": 100, "recall": 100, "accuracy": 100}
        assert task.predictions(outputs)[1]["words"] == ["Berlin", "slept"]


def test_spans_count_whole(folder: Path) -> None:
    task = made(folder)
    # The person's second word is lost: of two spans given one is right, of two wanted one is found.
    scores = task.score({0: said(task, 0, [1, 3, 3, 0, 3])})
    assert scores["span_f1"] == 50 and scores["accuracy"] == 80
    assert task.score({1: said(task, 1, [3, 3])})["span_f1"] == 0


def test_a_piece_without_output_is_not_counted(folder: Path) -> None:
    task = made(folder, by="document", length=20)
    outputs = {0: right(task, 0)}
    assert task.score(outputs)["accuracy"] == 100
    assert None in task.predictions(outputs)[0]["tags"]


def test_without_a_file_to_measure_on(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(TEXT)
    task = made(tmp_path / "a.conll")
    assert (len(task.train), len(task.dev)) == (2, 1)
    again = tasks.from_description(task.describe(), cache=tmp_path / "cache")
    assert again.describe() == task.describe()


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a O\nb\n", {}, r"a\.txt, line 2: a word and its tag, got 'b' alone"),
        ("a O\nb O\n", {"tag": 3}, r"a\.txt, line 1: no column 3 among 2: 'a O'"),
        ("\n\n", {}, r"a\.txt has no words"),
        ("", {}, r"a\.txt is empty"),
        ("a O\n", {}, "one example alone: name others to measure on with dev="),
        ("a O\n", {"by": "page"}, "by must be 'sentence' or 'document'"),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: str, settings: Any, message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        made(tmp_path / "a.txt", **settings)


def test_words_with_other_blanks_inside(tmp_path: Path) -> None:
    path = tmp_path / "eng.train"
    path.write_text("20\u00a0000 B-N\n\u3000 O\nit\tO \n\n" * 12)
    task = made(path)
    assert task.train.texts[0].words == ["20\u00a0000", "\u3000", "it"]  # type: ignore[attr-defined]
    assert task.train.texts[0].tags == ["B-N", "O", "O"]  # type: ignore[attr-defined]
