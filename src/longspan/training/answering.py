"""Questions to a model that was trained to find answers in texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..tasks.squad import Squad, asked
from ..training import Trained
from ..training.learner import on_device

__all__ = ["Answer", "answers"]

BATCH = 4


class Answer(NamedTuple):
    """What was found, and where.

    Attributes:
        text: as it stands in the document; empty where nothing answers the question.
        start: the place of its first character; −1 where there is none.
        end: after its last character.
        score: of the span; differences between two are ratios of probabilities.
        absent: by how much "no answer" scores above it.
    """

    text: str
    start: int
    end: int
    score: float
    absent: float


@torch.no_grad()
def answers(trained: Trained, questions: Sequence[tuple[str, str]]) -> list[Answer]:
    """Answers to questions, each with the text to look in; texts of any length are read through
    windows that overlap.
    """
    task = trained.task
    if not isinstance(task, Squad):
        raise ValueError(
            f"{trained.folder} was trained for {task.name}, and only squad answers questions"
        )
    windows = asked(task.reader, questions)
    device = next(trained.model.parameters()).device
    outputs: dict[int, Any] = {}
    for first in range(0, len(windows), BATCH):
        numbers = list(range(first, min(first + BATCH, len(windows))))
        batch, padded = on_device(windows.batch(numbers), device)
        scores = trained.objective.scores(trained.model, batch, padded)
        outputs |= trained.objective.decoded(trained.model, scores, batch)
    found = windows.answers(outputs)
    return [Answer(*found[number]) for number in range(len(questions))]
