"""Questions about texts: SQuAD's JSON; one's own as JSONL, CSV or TSV; texts with clauses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import describe
from .reading import Record, kind_of, need_fields, read_json, read_records

__all__ = ["JSON_KINDS", "QUESTION_KINDS", "Answer", "Question", "Questions", "read_questions"]

JSON_KINDS = (".json",)
QUESTION_KINDS = (*JSON_KINDS, ".jsonl", ".ndjson", ".csv", ".tsv")

SHAPE = '{"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}'

# What is asked of a text with marked clauses.
ABOUT = "Which part of this text is about {}?"

# Between the paragraphs of an article that is read as one text.
BETWEEN = "\n"


class Answer(NamedTuple):
    """An answer, and the first character of its place in the context; None where it is not."""

    text: str
    start: int | None


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        id: its name in `predictions.json`.
        text: what is asked.
        context: the number of the text that it is about.
        answers: the right ones, of which any will do.
        answerable: False where SQuAD 2.0 says that the text does not tell.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...]
    answerable: bool = True


@dataclass(slots=True)
class Questions:
    """What a file holds.

    Attributes:
        contexts: the texts.
        groups: for each text, the number of the article that it is from.
        questions: about them.
        misplaced: ids of questions with an answer that is not where the file says.
        several: ids of questions with an answer that stands at several places, of which the file
            does not say which is meant.
        unanswerable: whether the file says of its questions whether they have an answer (2.0).
    """

    contexts: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    several: list[str] = field(default_factory=list)
    unanswerable: bool = False

    @classmethod
    def joined(cls, files: Sequence[Questions]) -> Questions:
        """Those of several files, one after the other."""
        found = cls()
        for own in files:
            texts, articles = len(found.contexts), max(found.groups, default=-1) + 1
            found.contexts += own.contexts
            found.groups += [articles + group for group in own.groups]
            found.questions += [replace(q, context=texts + q.context) for q in own.questions]
            found.misplaced += own.misplaced
            found.several += own.several
            found.unanswerable |= own.unanswerable
        found.questions = _named_once(found.questions)
        return found

    def part(self, groups: set[int]) -> Questions:
        """The texts and questions of some articles."""
        kept = [n for n, group in enumerate(self.groups) if group in groups]
        place = {old: new for new, old in enumerate(kept)}
        questions = [
            Question(q.id, q.text, place[q.context], q.answers, q.answerable)
            for q in self.questions
            if q.context in place
        ]
        there = {q.id for q in questions}
        return Questions(
            [self.contexts[n] for n in kept],
            [self.groups[n] for n in kept],
            questions,
            [name for name in self.misplaced if name in there],
            [name for name in self.several if name in there],
            self.unanswerable,
        )


def read_questions(path: Path, by: Literal["paragraph", "article"] = "paragraph") -> Questions:
    """The questions of a file, each with the paragraph or the whole article that it is about."""
    found = Questions()
    if path.is_file() and kind_of(path) not in QUESTION_KINDS:
        raise ValueError(
            f"{path}: the name must end in .json, .jsonl, .csv or .tsv (or these and .gz or .xz)"
        )
    if kind_of(path) in JSON_KINDS:
        _read_squad(path, by, found)
    else:
        _read_own(path, found)
    if not found.questions:
        raise ValueError(f"{path} has no questions")
    found.questions = _named_once(found.questions)
    return found


def _named_once(questions: list[Question]) -> list[Question]:
    """With a number behind an id that was there before: answers are told by ids."""
    there: set[str] = set()
    last: dict[str, int] = {}
    found = []
    for question in questions:
        name, number = question.id, last.get(question.id, 1)
        while name in there:
            number += 1
            name = f"{question.id} ({number})"
        last[question.id] = number
        there.add(name)
        found.append(question if name == question.id else replace(question, id=name))
    return found


def _read_squad(path: Path, by: str, found: Questions) -> None:
    top = read_json(path)
    if not isinstance(top, dict) or "data" not in top:
        raise ValueError(
            f"{path}: no 'data' at the top, where SQuAD's JSON has {SHAPE}; "
            "questions of one's own are JSONL or CSV with question, context and answer"
        )
    for number, article in enumerate(_list(top, "data", f"{path}:")):
        place = f"{path}: data[{number}]"
        paragraphs = _list(article, "paragraphs", place)
        texts = [
            _text(paragraph, "context", f"{place}.paragraphs[{n}]")
            for n, paragraph in enumerate(paragraphs)
        ]
        if by == "article":
            found.contexts.append(BETWEEN.join(texts))
            found.groups.append(number)
        shift = 0
        for n, paragraph in enumerate(paragraphs):
            if by == "paragraph":
                found.contexts.append(texts[n])
                found.groups.append(number)
            for question in _asked(paragraph, f"{place}.paragraphs[{n}]", shift, found):
                found.questions.append(question)
            if by == "article":
                shift += len(texts[n]) + len(BETWEEN)


def _asked(paragraph: Any, place: str, shift: int, found: Questions) -> Iterator[Question]:
    """The questions of a paragraph, whose text begins at `shift` in the newest context."""
    context = found.contexts[-1]
    for number, entry in enumerate(_list(paragraph, "qas", place)):
        here = f"{place}.qas[{number}]"
        name = str(entry.get("id", here)) if isinstance(entry, dict) else here
        text = _text(entry, "question", here)
        impossible = entry.get("is_impossible", False)
        if not isinstance(impossible, bool):
            raise ValueError(
                f"{here}: 'is_impossible' must be true or false, got {describe(impossible)}"
            )
        answers: list[Answer] = []
        for own in [] if impossible else _list(entry, "answers", here):
            answer = _text(own, "text", f"{here}.answers")
            start = _number(own, "answer_start", f"{here}.answers")
            if not answer:
                continue
            there = context.startswith(answer, start + shift) and start >= 0
            if not there:
                found.misplaced.append(name)
            answers.append(Answer(answer, start + shift if there else None))
        found.unanswerable |= "is_impossible" in entry or not answers
        yield Question(name, text, len(found.contexts) - 1, tuple(answers), bool(answers))


def _read_own(path: Path, found: Questions) -> None:
    """Records with question, context and answers; or with a text and its clauses."""
    numbers: dict[str, int] = {}
    for line, record in enumerate(read_records(path, ())):
        if "clauses" in record.values:
            _read_clauses(record, line, found)
            continue
        answered = "answers" if "answers" in record.values else "answer"
        need_fields(record, ("question", "context", answered))
        question = _text(record.values, "question", record.place)
        context = _text(record.values, "context", record.place)
        if context not in numbers:
            numbers[context] = len(found.contexts)
            found.groups.append(len(found.contexts))
            found.contexts.append(context)
        given = record.values.get("id")
        name = str(line if given is None or given == "" else given)
        answers = []
        for text, start in _answers(record):
            places = _places_of(text, context) if start is None else [start]
            there = bool(places) and places[0] >= 0 and context.startswith(text, places[0])
            if not there:
                found.misplaced.append(name)
            elif len(places) > 1:
                found.several.append(name)
            answers.append(Answer(text, places[0] if there else None))
        found.unanswerable |= not answers
        found.questions.append(
            Question(name, question, numbers[context], tuple(answers), bool(answers))
        )


def _places_of(text: str, context: str) -> list[int]:
    """Where a text stands in another: as words of its own, or if nowhere so, inside of others."""
    whole = [own.start() for own in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", context)]
    return whole or [own.start() for own in re.finditer(re.escape(text), context)]


def _read_clauses(record: Record, line: int, found: Questions) -> None:
    """A text in which places are marked, by what they are about: a question for each kind of which
    it has any.
    """
    text, clauses = _text(record.values, "text", record.place), record.values["clauses"]
    if not isinstance(clauses, dict):
        raise ValueError(f"{record.place}: clauses must be lists of places by kind")
    number, title = len(found.contexts), str(record.values.get("title") or line)
    found.contexts.append(text)
    found.groups.append(number)
    for kind, places in clauses.items():
        name, answers = f"{title}: {kind}", []
        here = f"{record.place}: clauses[{kind!r}]"
        if not isinstance(places, list | dict):
            raise ValueError(f"{here}: must be a list of places, got {describe(places)}")
        for own in places if isinstance(places, list) else [places]:
            marked, start = _text(own, "text", here), _number(own, "start", here)
            there = start >= 0 and text.startswith(marked, start)
            if not there:
                found.misplaced.append(name)
            answers.append(Answer(marked, start if there else None))
        if answers:
            question = ABOUT.format(kind)
            found.questions.append(Question(name, question, number, tuple(answers)))


def _answers(record: Record) -> list[tuple[str, int | None]]:
    """The right answers of a record of one's own, each with its place, where that is said; none
    where its context does not tell.
    """
    if "answers" in record.values:
        return _answers_of_squad(record)
    given, starts = record.values["answer"], record.values.get("answer_start")
    texts = [""] if given is None else given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{record.place}: 'answer' must be a text, a list of texts, or nothing where the "
            f"context does not tell, got {describe(given)}"
        )
    if starts is None or starts == "":
        # Blanks around it are not what is looked for.
        return [(text.strip(), None) for text in texts if text.strip()]
    places = starts if isinstance(starts, list) else [starts]
    if len(places) != len(texts):
        raise ValueError(
            f"{record.place}: 'answer_start' must be a place for each answer, got {len(places)} "
            f"for {len(texts)}"
        )
    return [
        (text, _whole(own, f"{record.place}: 'answer_start'"))
        for text, own in zip(texts, places, strict=True)
        if text
    ]


def _answers_of_squad(record: Record) -> list[tuple[str, int | None]]:
    """The same in SQuAD's form, or in that of the datasets that are made of it, with lists of texts
    and of places.
    """
    given, place = record.values["answers"], f"{record.place}: answers"
    if isinstance(given, dict):
        texts, starts = (given.get(name) for name in ("text", "answer_start"))
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise ValueError(
                f"{place}: 'text' and 'answer_start' must be lists, of as many, got "
                f"{describe(given)}"
            )
        given = [
            {"text": text, "answer_start": own} for text, own in zip(texts, starts, strict=True)
        ]
    if not isinstance(given, list):
        raise ValueError(
            f"{place}: must be a list of answers with 'text' and 'answer_start', got "
            f"{describe(given)}"
        )
    found = [(_text(own, "text", place), _number(own, "answer_start", place)) for own in given]
    return [own for own in found if own[0]]


def _whole(value: Any, what: str) -> int:
    """A whole number, which a table has as text."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{what} must be a whole number, got {describe(value)}")
    return value


def _list(owner: Any, name: str, place: str) -> list[Any]:
    found = owner.get(name) if isinstance(owner, dict) else None
    if not isinstance(found, list):
        raise ValueError(f"{place}: no list {name!r}, where SQuAD's JSON has {SHAPE}")
    return found


def _text(owner: Any, name: str, place: str) -> str:
    if not isinstance(owner, dict) or name not in owner:
        raise ValueError(f"{place}: no text {name!r}")
    found = owner[name]
    if not isinstance(found, str):
        raise ValueError(f"{place}: {name!r} must be a text, got {describe(found)}")
    return found


def _number(owner: dict[str, Any], name: str, place: str) -> int:
    """Where a text begins, in characters."""
    found = owner.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{place}: {name!r} must be a whole number, got {describe(found)}")
    return found
