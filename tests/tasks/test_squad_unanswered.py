"""Questions that their text does not answer, made of ones that it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from longspan.tasks import make
from longspan.tasks.squad import Squad

from .test_squad import KING, RIVER, articles, asked, made, right, write


def test_questions_about_the_wrong_paragraph(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", articles())
    task = made(path, dev=path, mismatched=1.0)
    source = asked(task)
    others = [own for own in source.questions if not own.answerable]
    # The sea has one paragraph alone.
    assert [own.id for own in others] == ["r1-mismatched", "r2-mismatched", "k1-mismatched"]
    assert [source.contexts[own.context] for own in others] == [KING, KING, RIVER]
    # Each comes after its own question, so that the first ones have some of both kinds.
    first = [own.id for own in source.questions][:3]
    assert first == ["r1", "r1-mismatched", "r2"]
    assert task.unanswerable and right(task, 1, "train") == (0, 0)
    half = asked(made(path, dev=path, mismatched=0.5))
    assert [own.id for own in half.questions if not own.answerable] == ["r2-mismatched"]
    # A file that was named is measured on as it is.
    assert not asked(task, "dev").unanswerable


def test_paragraphs_with_the_answer_are_no_wrong_ones(tmp_path: Path) -> None:
    alps = "Munich is near the Alps."
    data = articles()
    data[0]["paragraphs"].insert(1, {"context": alps, "qas": []})
    task = made(write(tmp_path / "train.json", data), dev=tmp_path / "train.json", mismatched=1.0)
    source = asked(task)
    first = next(own for own in source.questions if own.id == "r1-mismatched")
    assert source.contexts[first.context] == KING


def test_questions_about_a_paragraph_without_the_answers_sentence(tmp_path: Path) -> None:
    text = "Bern is a city. Its river is the Aare! Is it cold? Many swim in it, in the Aare too."
    about = {
        "city": ("What is Bern?", "a city"),
        # Stands in another sentence too.
        "river": ("Which river is there?", "the Aare"),
        # Touches two sentences.
        "both": ("Which?", "the Aare! Is it cold"),
    }
    qas = [
        {"id": name, "question": question,
         "answers": [{"text": answer, "answer_start": text.index(answer)}]}
        for name, (question, answer) in about.items()
    ]  # fmt: skip
    data = [
        {"title": "Bern", "paragraphs": [{"context": text, "qas": qas}]},
        {"title": "King", "paragraphs": [{"context": "One sentence alone.", "qas": [
            {"id": "one", "question": "How many?",
             "answers": [{"text": "One", "answer_start": 0}]}]}]},
    ]  # fmt: skip
    path = write(tmp_path / "train.json", data)
    task = made(path, dev=path, removed=1.0)
    source = asked(task)
    found = {own.id: source.contexts[own.context] for own in source.questions if not own.answerable}
    assert found == {
        "city-removed": "Its river is the Aare! Is it cold? Many swim in it, in the Aare too.",
        "both-removed": "Bern is a city. Many swim in it, in the Aare too.",
    }
    order = ["city", "city-removed", "river", "both", "both-removed", "one"]
    assert [own.id for own in source.questions] == order
    assert right(task, 1, "train") == (0, 0)
    assert not asked(task, "dev").unanswerable
    # Of both kinds; a wrong paragraph is never one that was made.
    data[0]["paragraphs"].append({"context": "Another. And more.", "qas": []})
    write(path, data)
    both = asked(made(path, dev=path, removed=1.0, mismatched=1.0))
    others = [own for own in both.questions if own.id.endswith("-mismatched")]
    assert {both.contexts[own.context] for own in others} == {"Another. And more."}
    assert {own.id for own in both.questions if own.id.endswith("-removed")} == set(found)


def test_answers_held_back_are_without_their_sentence_too(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", [*articles(), *articles()])
    task = made(path, removed=1.0, no_answer="chosen")
    for split in ("train", "dev", "held"):
        assert asked(task, split).unanswerable


def test_an_answer_that_stands_elsewhere_in_another_form(tmp_path: Path) -> None:
    """As the metric reads it, or as it is written: in a possessive, before a hyphen."""
    text = "The prize went to Roe. It rained. {} It was late."
    for other in ("Roe's speech was short.", "A Roe-like speech.", "So said a ROE."):
        own = text.format(other)
        qas = [
            {"id": "who", "question": "Who?", "answers": [{"text": "Roe", "answer_start": 18}]},
            {"id": "rain", "question": "And?", "answers": [{"text": "rained", "answer_start": 26}]},
        ]
        path = write(tmp_path / "train.json", [{"paragraphs": [{"context": own, "qas": qas}]}])
        source = asked(made(path, dev=path, removed=1.0))
        assert [q.id for q in source.questions if not q.answerable] == ["rain-removed"], other


def test_what_makes_no_question_is_said(tmp_path: Path) -> None:
    """Of texts that are no articles there is no other paragraph, and of one sentence nothing is
    left.
    """
    path = tmp_path / "own.csv"
    path.write_text("question,context,answer\nWho?,One was here.,One\nWhat?,Two is all.,Two\n")
    for name, says in (("mismatched", "articles of several"), ("removed", "texts of several")):
        with pytest.raises(ValueError, match=rf"squad: {name}=0.5 makes no question .*{says}"):
            made(path, dev=path, **{name: 0.5})


def test_of_the_sample_both_parts_have_some() -> None:
    task = make("squad", mismatched=0.3, length=256, question_length=128, vocabulary=500)
    assert isinstance(task, Squad)
    for split in ("train", "dev"):
        assert asked(task, split).unanswerable
        assert not all(own.answerable for own in asked(task, split).questions[:30])
