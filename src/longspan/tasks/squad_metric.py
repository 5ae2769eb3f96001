"""SQuAD's own measures, as its scripts for versions 1.1 and 2.0 define them.

A text is compared without case, punctuation, articles (a, an, the) and extra blanks. A prediction
is as good as it is beside the best of a question's answers.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Threshold", "best_threshold", "exact_match", "f1", "normalized"]

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


class Threshold(NamedTuple):
    """The best that leaving questions unanswered can do.

    Attributes:
        score: the mean at best, in percent.
        value: the greatest score of "no answer" at which a question is still answered.
    """

    score: float
    value: float


def normalized(text: str) -> str:
    """A text as it is compared."""
    bare = text.lower().translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 where the prediction is one of the answers, 0 otherwise."""
    own = normalized(prediction)
    return float(any(own == normalized(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str], *, unanswerable: bool = False) -> float:
    """The harmonic mean of precision and recall over words, with the best of the answers.

    Two texts without words are alike in version 2.0 (`unanswerable=True`), where they mean that
    there is no answer; in 1.1 nothing is common to them.
    """
    return max(_f1(prediction, answer, unanswerable) for answer in answers)


def best_threshold(
    scores: Mapping[str, float], absent: Mapping[str, float], answerable: Mapping[str, bool]
) -> Threshold:
    """From which score of "no answer" on it is best to give none.

    Args:
        scores: for each question how good its answer is, 0 to 1.
        absent: for each question how sure the model is that there is no answer.
        answerable: which questions have one.
    """
    # All questions left unanswered; then one after the other is answered, the surest first.
    now = best = float(sum(not known for known in answerable.values()))
    order = sorted(scores, key=lambda question: absent[question])
    value = math.nextafter(absent[order[0]], -math.inf)
    for place, question in enumerate(order):
        # An unanswerable one was right; it stays so where even the model's best span is empty.
        now += scores[question] - (0 if answerable[question] else 1)
        # Questions that the model is equally sure of are answered together.
        last = place + 1 == len(order) or absent[order[place + 1]] > absent[question]
        if last and now > best:
            best, value = now, absent[question]
    return Threshold(100 * best / len(scores), value)


def _f1(prediction: str, answer: str, unanswerable: bool) -> float:
    own, wanted = normalized(prediction).split(), normalized(answer).split()
    if unanswerable and not (own and wanted):
        return float(own == wanted)
    common = (Counter(own) & Counter(wanted)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(own), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
