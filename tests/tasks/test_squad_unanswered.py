"""Questions that their text does not answer, made of ones that it does."""

from __future__ import annotations

from pathlib import Path

from .test_squad import KING, RIVER, articles, made, right, write


def test_questions_about_the_wrong_paragraph(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", articles())
    task = made(path, dev=path, mismatched=1.0)
    source = task.train.source  # type: ignore[attr-defined]
    others = [own for own in source.questions if not own.answerable]
    # The sea has one paragraph alone.
    assert [own.id for own in others] == ["r1-mismatched", "r2-mismatched", "k1-mismatched"]
    assert [source.contexts[own.context] for own in others] == [KING, KING, RIVER]
    assert task.unanswerable and right(task, len(task.train) - 1, "train") == (0, 0)
    half = made(path, dev=path, mismatched=0.5).train.source  # type: ignore[attr-defined]
    assert [own.id for own in half.questions if not own.answerable] == ["r2-mismatched"]
    # A file that was named is measured on as it is.
    assert not task.dev.source.unanswerable  # type: ignore[attr-defined]


def test_paragraphs_with_the_answer_are_no_wrong_ones(tmp_path: Path) -> None:
    alps = "Munich is near the Alps."
    data = articles()
    data[0]["paragraphs"].insert(1, {"context": alps, "qas": []})
    task = made(write(tmp_path / "train.json", data), dev=tmp_path / "train.json", mismatched=1.0)
    source = task.train.source  # type: ignore[attr-defined]
    first = next(own for own in source.questions if own.id == "r1-mismatched")
    assert source.contexts[first.context] == KING


def test_questions_about_a_paragraph_without_the_answers_sentence(tmp_path: Path) -> None:
    text = "Bern is a city. Its river is the Aare! Is it cold? Many swim in it, in the Aare too."
    asked = {
        "city": ("What is Bern?", "a city"),
        # Stands in another sentence too.
        "river": ("Which river is there?", "the Aare"),
        # Touches two sentences.
        "both": ("Which?", "the Aare! Is it cold"),
    }
    qas = [
        {"id": name, "question": question,
         "answers": [{"text": answer, "answer_start": text.index(answer)}]}
        for name, (question, answer) in asked.items()
    ]  # fmt: skip
    data = [
        {"title": "Bern", "paragraphs": [{"context": text, "qas": qas}]},
        {"title": "King", "paragraphs": [{"context": "One sentence alone.", "qas": [
            {"id": "one", "question": "How many?",
             "answers": [{"text": "One", "answer_start": 0}]}]}]},
    ]  # fmt: skip
    path = write(tmp_path / "train.json", data)
    task = made(path, dev=path, removed=1.0)
    source = task.train.source  # type: ignore[attr-defined]
    found = {own.id: source.contexts[own.context] for own in source.questions if not own.answerable}
    assert found == {
        "city-removed": "Its river is the Aare! Is it cold? Many swim in it, in the Aare too.",
        "both-removed": "Bern is a city. Many swim in it, in the Aare too.",
    }
    assert [own.id for own in source.questions[:4]] == [*asked, "one"]
    assert right(task, len(task.train) - 1, "train") == (0, 0)
    assert not task.dev.source.unanswerable  # type: ignore[attr-defined]
    # Of both kinds; a wrong paragraph is never one that was made.
    both = made(path, dev=path, removed=1.0, mismatched=1.0).train.source  # type: ignore[attr-defined]
    assert [own.id for own in both.questions if "-" in own.id] == list(found)


def test_answers_held_back_are_without_their_sentence_too(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", [*articles(), *articles()])
    task = made(path, removed=1.0, no_answer="chosen")
    for part in (task.train, task.dev, task.held):
        assert part.source.unanswerable  # type: ignore[union-attr]
