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
    """With questions of both kinds, after all others."""
    if not any(shares):
        return questions
    asked = [question for question in questions.questions if question.answerable]
    more = [*_mismatched(questions, _spread(asked, shares.mismatched))]
    contexts, groups = [*questions.contexts], [*questions.groups]
    for question in _spread(asked, shares.removed):
        text = _without_answers(question, questions.contexts[question.context])
        if text is not None:
            more.append(_unanswerable(question, len(contexts), "removed"))
            contexts.append(text)
            groups.append(questions.groups[question.context])
    everything = [*questions.questions, *more]
    return replace(
        questions, contexts=contexts, groups=groups, questions=everything, unanswerable=True
    )


def _spread(questions: list[Question], share: float) -> list[Question]:
    return [
        question
        for place, question in enumerate(questions)
        if int((place + 1) * share) > int(place * share)
    ]


def _unanswerable(question: Question, context: int, kind: str) -> Question:
    return Question(f"{question.id}-{kind}", question.text, context, (), answerable=False)


def _mismatched(questions: Questions, asked: list[Question]) -> Iterator[Question]:
    if not asked:
        return
    articles: dict[int, list[int]] = {}
    for number, group in enumerate(questions.groups):
        articles.setdefault(group, []).append(number)
    texts = [f" {normalized(text)} " for text in questions.contexts]
    for question in asked:
        own = articles[questions.groups[question.context]]
        other = _next_without(question, own, texts)
        if other is not None:
            yield _unanswerable(question, other, "mismatched")


def _next_without(question: Question, article: list[int], texts: list[str]) -> int | None:
    """The next paragraph after the question's own, from the first again after the last."""
    start = article.index(question.context)
    for number in article[start + 1 :] + article[:start]:
        if not _stands_in(question, texts[number]):
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
    if not left or _stands_in(question, f" {normalized(left)} "):
        return None
    return left


def _stands_in(question: Question, text: str) -> bool:
    """Whether one of the answers stands in a normalised text, with spaces around it."""
    answers = [normalized(answer.text) for answer in question.answers]
    return any(f" {answer} " in text for answer in answers if answer)
