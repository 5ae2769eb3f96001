"""SQuAD's measures against cases worked out by hand."""

from __future__ import annotations

import pytest

from longspan.tasks.squad_metric import best_threshold, exact_match, f1, normalized


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Beatles!", "beatles"),
        ("  a  man,\tan  apple and\nthe sea ", "man apple and sea"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("twenty-one", "twentyone"),
        ("the", ""),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("a.b", "ab"),
        ("Café", "café"),
    ],
)
def test_how_a_text_is_compared(text: str, plain: str) -> None:
    assert normalized(text) == plain


def test_exact_match_takes_any_answer() -> None:
    assert exact_match("the Denver Broncos.", ["Broncos", "Denver Broncos"]) == 1
    assert exact_match("Denver", ["Broncos", "Denver Broncos"]) == 0


@pytest.mark.parametrize(
    ("prediction", "answers", "value"),
    [
        ("Denver Broncos", ["Denver Broncos"], 1.0),
        ("Denver", ["Denver Broncos"], 2 / 3),  # precision 1, recall 1/2
        ("the Denver Broncos team", ["Denver Broncos"], 0.8),  # precision 2/3, recall 1
        ("cat cat dog", ["cat dog dog"], 2 / 3),  # words count as often as they are in both
        ("cat", ["dog", "cat sat mat", "cat sat"], 2 / 3),  # the best of the answers
        ("cat", ["dog"], 0.0),
    ],
)
def test_f1(prediction: str, answers: list[str], value: float) -> None:
    assert f1(prediction, answers) == pytest.approx(value, abs=1e-15)
    assert f1(prediction, answers, unanswerable=True) == pytest.approx(value, abs=1e-15)


def test_texts_without_words() -> None:
    assert f1("the", ["a"]) == 0  # version 1.1: nothing is common
    assert f1("the", ["a"], unanswerable=True) == 1
    assert f1("", ["cat"], unanswerable=True) == 0
    assert f1("cat", [""], unanswerable=True) == 0
    assert exact_match("", [""]) == 1


def test_the_best_threshold() -> None:
    # Answered up to and with c: a and c right, b wrong (it has none); d stays unanswered: 3 of 4
    # would need b unanswered too. Up to a alone: a, and the two without answers: also 3.
    answerable = {"a": True, "b": False, "c": True, "d": False}
    scores = {"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}
    absent = {"a": -3.0, "b": -2.0, "c": 1.0, "d": 5.0}
    assert best_threshold(scores, absent, answerable) == (75.0, -3.0)
    absent["b"] = 2.0
    assert best_threshold(scores, absent, answerable) == (100.0, 1.0)
    nothing = best_threshold({"b": 0.0}, {"b": -1.0}, {"b": False})
    assert nothing.score == 100.0 and nothing.value < -1.0


def test_questions_that_are_equally_sure_are_answered_together() -> None:
    answerable = {"a": True, "b": False}
    found = best_threshold({"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, answerable)
    assert found.score == 50.0
