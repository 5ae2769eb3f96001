"""Questions asked about the wrong paragraph, so that a model learns to say that a text does not
tell.
"""

from __future__ import annotations

from dataclasses import replace

from .squad_files import Question, Questions
from .squad_metric import normalized

__all__ = ["with_mismatched"]


def with_mismatched(questions: Questions, share: float) -> Questions:
    """With a share of the answerable questions, spread evenly, a second time: about the next
    paragraph of the article in which none of the answers stands, and so without an answer.

    An article whose other paragraphs all have it gives none.
    """
    if not share:
        return questions
    articles: dict[int, list[int]] = {}
    for number, group in enumerate(questions.groups):
        articles.setdefault(group, []).append(number)
    texts = [f" {normalized(text)} " for text in questions.contexts]
    asked = [question for question in questions.questions if question.answerable]
    more = []
    for place, question in enumerate(asked):
        if int((place + 1) * share) == int(place * share):
            continue
        own = articles[questions.groups[question.context]]
        other = _without_answer(question, own, texts)
        if other is not None:
            name = f"{question.id}-mismatched"
            more.append(Question(name, question.text, other, (), answerable=False))
    return replace(questions, questions=[*questions.questions, *more], unanswerable=True)


def _without_answer(question: Question, article: list[int], texts: list[str]) -> int | None:
    """The next paragraph after the question's own, from the first again after the last."""
    answers = [normalized(answer.text) for answer in question.answers]
    start = article.index(question.context)
    for number in article[start + 1 :] + article[:start]:
        if not any(f" {answer} " in texts[number] for answer in answers if answer):
            return number
    return None
