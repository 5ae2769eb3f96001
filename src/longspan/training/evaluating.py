"""How good a model is on examples that it has not learned from."""

from __future__ import annotations

from typing import Any

import torch

from ..tasks import Task
from .learner import Learner, on_device
from .measuring import pairs_of
from .processes import gathered, process_count, process_number, summed

__all__ = ["Evaluation", "evaluate", "outputs_of"]


class Evaluation(dict[str, Any]):
    """`loss`, `metrics`, `metric` (the main one's value), `pairs` and `pairs_per_token`."""


@torch.no_grad()
def outputs_of(
    learner: Learner,
    task: Task,
    numbers: list[int],
    *,
    batch: int,
    split: str = "dev",
    device: torch.device,
) -> tuple[dict[int, Any], float, int, dict[str, float]]:
    """What a model answers to the examples of these numbers, the sum of their loss, the number of
    their targets, and the pairs of the first batch. Several processes share the examples, and all
    of them have all answers.
    """
    was, objective = learner.training, learner.objective
    own = numbers[process_number() :: process_count()]
    outputs: dict[int, Any] = {}
    total, count = 0.0, 0
    pairs: dict[str, float] = {}
    learner.eval()
    with learner.autocast():
        for first in range(0, len(own), batch):
            given = task.batch(own[first : first + batch], split)
            count += objective.count(given)
            there, padded = on_device(given, device)
            if not pairs:
                pairs = pairs_of(learner, there, padded)
            scores = objective.scores(learner, there, padded)
            total += float(objective.loss_of(scores, there))
            outputs |= objective.decoded(learner, scores, there)
    learner.train(was)
    if process_count() > 1:
        parts = gathered([[number, own] for number, own in outputs.items()], device)
        outputs = {number: objective.restored(own) for part in parts for number, own in part}
        outputs = {number: outputs[number] for number in numbers}
        # Those of the first process: others may have had other examples.
        pairs = gathered(pairs, device)[0]
        total, whole = summed([total, float(count)], device)
        count = int(whole)
    return outputs, total, count, pairs


def evaluate(
    learner: Learner,
    task: Task,
    *,
    batch: int,
    most: int | None,
    device: torch.device,
) -> tuple[Evaluation, dict[int, Any]]:
    """The task's metrics on its dev examples, and what the model answered."""
    count = len(task.dev) if most is None else min(most, len(task.dev))
    outputs, total, targets, pairs = outputs_of(
        learner,
        task,
        list(range(count)),
        batch=batch,
        device=device,
    )
    metrics = task.score(outputs, "dev")
    found = Evaluation(
        loss=total / max(targets, 1), metric=metrics[task.metric], metrics=metrics, **pairs
    )
    return found, outputs
