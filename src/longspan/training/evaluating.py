"""How good a model is on examples that it has not learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..nn.modes import evaluating
from ..tasks import Task
from .learner import Learner, on_device
from .measuring import COUNTED, Pairs, watched
from .processes import gathered, process_count, process_number, summed

__all__ = ["Evaluation", "evaluate", "outputs_of"]


class Evaluation(dict[str, Any]):
    """`loss`, `metrics`, `metric` (the main one's value), `pairs`, `pairs_per_token`, with learned
    windows `mean_reach`, and where a task has something to choose `chosen`.
    """


@torch.no_grad()
def outputs_of(
    learner: Learner,
    task: Task,
    numbers: list[int],
    *,
    batch: int,
    split: str = "dev",
    device: torch.device,
    told: Callable[[int, int], None] | None = None,
) -> tuple[dict[int, Any], float, int, dict[str, float]]:
    """What a model answers to the examples of these numbers, the sum of their loss, the number of
    their targets, and the pairs of some examples among them, spread evenly. Several processes share
    the examples, and all of them have all answers.

    Args:
        told: how many of how many examples of this process are done.
    """
    objective = learner.objective
    own = _by_length(task.lengths(split), numbers)[process_number() :: process_count()]
    outputs: dict[int, Any] = {}
    total, count = 0.0, 0
    pairs = Pairs()
    starts = range(0, len(own), batch)
    every, each = max(1, len(starts) // COUNTED), max(1, COUNTED // max(len(starts), 1))
    with evaluating(learner), learner.autocast():
        for turn, first in enumerate(starts):
            given = task.batch(own[first : first + batch], split)
            count += objective.count(given)
            there, padded = on_device(given, device, learner.longest)
            if turn % every == 0:
                with watched(learner) as seen:
                    scores = objective.scores(learner, there, padded)
                pairs.add(seen, each)
            else:
                scores = objective.scores(learner, there, padded)
            total += float(objective.loss_of(scores, there))
            outputs |= objective.decoded(learner, scores, there)
            if told is not None:
                told(min(first + batch, len(own)), len(own))
    if process_count() > 1:
        parts = gathered([[number, own] for number, own in outputs.items()], device)
        outputs = {number: objective.restored(own) for part in parts for number, own in part}
        total, whole = summed([total, float(count)], device)
        count = int(whole)
    return {number: outputs[number] for number in numbers}, total, count, pairs.summed(device)


def _by_length(lengths: Sequence[int] | None, numbers: list[int]) -> list[int]:
    """Long examples first, so that less is padding, and too little memory shows at once."""
    if lengths is None:
        return numbers
    return sorted(numbers, key=lambda number: -lengths[number])


def evaluate(
    learner: Learner,
    task: Task,
    *,
    batch: int,
    most: int | None,
    device: torch.device,
    told: Callable[[int, int], None] | None = None,
) -> tuple[Evaluation, dict[int, Any]]:
    """The task's metrics on its dev examples, and what the model answered; before that, what the
    task leaves to be chosen is chosen on examples that are held for it.
    """

    def answered(examples: Sequence[Any], split: str) -> tuple[dict[int, Any], float, int, Any]:
        count = len(examples) if most is None else min(most, len(examples))
        numbers = list(range(count))
        return outputs_of(
            learner, task, numbers, batch=batch, split=split, device=device, told=told
        )

    found = Evaluation()
    if task.held is not None:
        outputs, *_ = answered(task.held, "held")
        found["chosen"] = task.choose(outputs)
        task.take(found["chosen"])
    outputs, total, targets, pairs = answered(task.dev, "dev")
    metrics = task.score(outputs, "dev")
    found |= {"loss": total / max(targets, 1), "metric": metrics[task.metric], "metrics": metrics}
    return Evaluation(found | pairs), outputs
