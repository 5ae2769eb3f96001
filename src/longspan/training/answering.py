"""Questions to a model that was trained to find answers in texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import need_int
from ..tasks.squad_reader import SquadReader
from ..tasks.squad_windows import Found
from .learner import Learner
from .looked import Looked, looked_at
from .predicting import outputs_to

__all__ = ["Answer", "answers_of"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and where.

    Attributes:
        text: as it stands in the document; empty where nothing answers the question.
        start: the place of its first character in the document; −1 where there is none.
        end: after its last character.
        score: of the span; differences between two are ratios of probabilities.
        absent: by how much "no answer" scores above it.
        held: whether the model holds that the document tells. Not where nothing was found, and, of
            a model that learned that some texts do not tell, where `absent` is above the task's
            `no_answer`.
    """

    text: str
    start: int
    end: int
    score: float
    absent: float
    held: bool = True
    _look: Callable[[int], Looked] | None = field(default=None, repr=False, compare=False)

    def looked(self, top: int = 8) -> Looked | None:
        """What the answer's first and last token looked at; None where nothing was found.

        The part of the document that the answer was found in is read once more for it.

        Args:
            top: how many of the words that were looked at most are wanted.
        """
        need_int("looked: top", top, at_least=1)
        return None if self._look is None else self._look(top)

    def as_dict(self) -> dict[str, Any]:
        """All but what was looked at, as JSON can hold it."""
        names = ("text", "start", "end", "score", "absent", "held")
        return {name: getattr(self, name) for name in names}


def answers_of(
    learner: Learner, reader: SquadReader, questions: Sequence[tuple[str, str]]
) -> list[Answer]:
    """Answers to questions, each with the text to look in; texts of any length are read through
    windows that overlap.
    """
    windows = reader.asked(questions)
    outputs = outputs_to(learner, len(windows), windows.batch)
    found = windows.answers(outputs)

    def answer(own: Found) -> Answer:
        look = partial(looked_at, learner, windows, own) if own.text else None
        return Answer(own.text, own.start, own.end, own.score, own.absent, reader.holds(own), look)

    return [answer(found[number]) for number in range(len(questions))]
