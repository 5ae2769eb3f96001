"""Questions that their text does not answer, made of ones that it does, so that a model learns to
say that a text does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from .squad_files import Question, Questions
from .squad_metric import normalized

__all__ = ["Unanswered", "with_unanswered"]

# Between two sentences. A dot after an abbreviation parts one, too: then less is taken out.
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+")


class Unanswered(NamedTuple):
    """Which shares of the answerable questions, spread evenly, are asked a second time.

    Attributes:
        mismatched: about the next paragraph of the article in which none of the answers stands. An
            article whose other paragraphs all have it gives none.
        removed: about their own text without the sentences in which an answer stands. One of which
            nothing is left, or in which an answer stands elsewhere too, gives none.
    """

    mismatched: float = 0.0
    removed: float = 0.0


def with_unanswered(questions: Questions, shares: Unanswered) -> Questions:
    """With questions of both kinds, each after the one that it is made of: the first so many of all
    have some of every kind.
    """
    if not any(shares):
        return questions
    asked = [question for question in questions.questions if question.answerable]
    more = dict(_mismatched(questions, _spread(asked, shares.mismatched)))
    contexts, groups = [*questions.contexts], [*questions.groups]
    removed = {}
    for question in _spread(asked, shares.removed):
        text = _without_answers(question, questions.contexts[question.context])
        if text is not None:
            removed[id(question)] = _unanswerable(question, len(contexts), "removed")
            contexts.append(text)
            groups.append(questions.groups[question.context])
    everything = []
    for question in questions.questions:
        made = (kind.get(id(question)) for kind in (more, removed))
        everything += [question, *filter(None, made)]
    unanswerable = questions.unanswerable or bool(more) or bool(removed)
    return replace(
        questions,
        contexts=contexts,
        groups=groups,
        questions=everything,
        unanswerable=unanswerable,
    )


def _spread(questions: list[Question], share: float) -> list[Question]:
    return [
        question
        for place, question in enumerate(questions)
        if int((place + 1) * share) > int(place * share)
    ]


def _unanswerable(question: Question, context: int, kind: str) -> Question:
    return Question(f"{question.id}-{kind}", question.text, context, (), answerable=False)


def _mismatched(questions: Questions, asked: list[Question]) -> Iterator[tuple[int, Question]]:
    if not asked:
        return
    articles: dict[int, list[int]] = {}
    for number, group in enumerate(questions.groups):
        articles.setdefault(group, []).append(number)
    texts = [_Text.of(text) for text in questions.contexts]
    for question in asked:
        own = articles[questions.groups[question.context]]
        other = _next_without(question, own, texts)
        if other is not None:
            yield id(question), _unanswerable(question, other, "mismatched")


def _next_without(question: Question, article: list[int], texts: list[_Text]) -> int | None:
    """The next paragraph after the question's own, from the first again after the last."""
    start = article.index(question.context)
    for number in article[start + 1 :] + article[:start]:
        if not texts[number].has_one_of(question):
            return number
    return None


def _without_answers(question: Question, text: str) -> str | None:
    """A text without the sentences that an answer touches; None where that leaves none, or some
    answer.
    """
    places = [
        (answer.start, answer.start + len(answer.text))
        for answer in question.answers
        if answer.start is not None
    ]
    ends = [match.end() for match in BETWEEN_SENTENCES.finditer(text)]
    kept = [
        text[begin:end]
        for begin, end in zip([0, *ends], [*ends, len(text)], strict=True)
        if not any(first < end and begin < last for first, last in places)
    ]
    left = "".join(kept).strip()
    if not left or _Text.of(left).has_one_of(question):
        return None
    return left


class _Text(NamedTuple):
    """A text as the metric reads it, and as it is written, but for capitals."""

    read: str
    written: str

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(f" {normalized(text)} ", text.casefold())

    def has_one_of(self, question: Question) -> bool:
        """Whether one of a question's answers stands in it, as words of their own: as the metric
        reads "the Roe" in "a Roe", or as it is written in "Roe's".
        """
        for answer in question.answers:
            read, written = normalized(answer.text), answer.text.casefold().strip()
            if read and f" {read} " in self.read:
                return True
            if written and re.search(rf"(?<!\w){re.escape(written)}(?!\w)", self.written):
                return True
        return False
