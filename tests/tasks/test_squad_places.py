"""Where answers of one's own are: where the file says, or where they stand as words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longspan.tasks.squad_files import read_questions

LEASE = "Signed in 2020. The rent is due monthly. The lease runs until 2020."
LAST = LEASE.rindex("2020")


def one(folder: Path, **record: Any) -> tuple[list[int | None], list[str], list[str]]:
    """The places of the answers of one question; ids of misplaced ones, and of several places."""
    path = folder / "own.jsonl"
    path.write_text(json.dumps({"id": "q", "question": "Until when?", "context": LEASE} | record))
    found = read_questions(path)
    return [own.start for own in found.questions[0].answers], found.misplaced, found.several


@pytest.mark.parametrize(
    "said",
    [
        {"answer": "2020", "answer_start": LAST},
        {"answer": ["2020"], "answer_start": [LAST]},
        {"answers": [{"text": "2020", "answer_start": LAST}]},
        {"answers": {"text": ["2020"], "answer_start": [LAST]}},
    ],
    ids=["a place", "a list", "SQuAD's", "lists of both"],
)
def test_a_place_that_is_said_is_the_answers(said: dict[str, Any], tmp_path: Path) -> None:
    assert one(tmp_path, **said) == ([LAST], [], [])


def test_a_table_says_it_too(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f'question,context,answer,answer_start\nWhen?,"{LEASE}",2020,{LAST}\n')
    path.write_text(path.read_text() + f'And when?,"{LEASE}",monthly,\n')
    first, second = read_questions(path).questions
    assert [own.answers[0].start for own in (first, second)] == [LAST, LEASE.index("monthly")]


def test_words_of_their_own_come_before_parts_of_others(tmp_path: Path) -> None:
    context = "Adam sold it, and Ada signs."
    assert one(tmp_path, context=context, answer="Ada") == ([18], [], [])
    assert one(tmp_path, context=context, answer="Ad") == ([0], [], ["q"])
    assert one(tmp_path, context="US$5 is due.", answer="$5") == ([2], [], [])


def test_several_places_are_told(tmp_path: Path) -> None:
    assert one(tmp_path, answer="2020") == ([LEASE.index("2020")], [], ["q"])
    assert one(tmp_path, answer="monthly") == ([LEASE.index("monthly")], [], [])


def test_an_answer_that_is_not_where_it_is_said_to_be(tmp_path: Path) -> None:
    for start in (0, -1, 10_000):
        assert one(tmp_path, answer="2020", answer_start=start) == ([None], ["q"], [])
    assert one(tmp_path, answer="2021") == ([None], ["q"], [])


def test_no_answer(tmp_path: Path) -> None:
    for said in ({"answer": ""}, {"answers": []}, {"answers": {"text": [], "answer_start": []}}):
        assert one(tmp_path, **said) == ([], [], [])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"answer": "2020", "answer_start": "ten"}, "line 1: 'answer_start' must be a whole"),
        ({"answer": ["a", "b"], "answer_start": [1]}, "a place for each answer, got 1 for 2"),
        ({"answers": "2020"}, "answers: must be a list of answers with 'text'"),
        ({"answers": {"text": ["a"], "answer_start": []}}, "must be lists, of as many"),
        ({"answers": [{"text": "2020"}]}, "'answer_start' must be a whole number"),
        ({}, "no field 'answer'"),
    ],
    ids=lambda own: str(own)[:30],
)
def test_what_is_wrong(said: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        one(tmp_path, **said)
