"""What a trained model looks at in one real text, for reports to draw."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..nn import Mechanism, Setting
from ..nn.modes import evaluating
from ..tasks import Batch, Task
from .learner import Learner, on_device
from .measuring import watched
from .sight import sight_of

__all__ = ["looks"]

# Longer texts are hard to show.
LONGEST = 1500


@torch.no_grad()
def looks(learner: Learner, task: Task, device: torch.device) -> dict[str, Any] | None:
    """For every token of one dev example, in every layer and head, the first and the last token
    that it sees, and how far it reaches. None where no example is short enough.

    Global tokens are listed apart: what is seen because it is global widens no interval.
    """
    number = _example(task)
    if number is None:
        return None
    batch, padded = on_device(task.batch([number], "dev"), device)
    with evaluating(learner), learner.autocast():
        with watched(learner) as seen:
            scores = learner.objective.scores(learner, batch, padded)
        said = learner.objective.decoded(learner, scores, batch)
    # What is shown of a translation is its source, which the encoder reads.
    shown = [own for own in seen if batch.source is None or not own[0].causal]
    layers = [_layer(mechanism, *inputs) for mechanism, inputs in shown]
    tokens = batch.tokens[0] if batch.source is None else batch.source["tokens"][0]
    n, marked = len(tokens), batch.global_tokens
    alone = batch.source is None
    return {
        "task": task.name,
        "number": number,
        "tokens": task.texts(tokens.tolist()),
        "real": batch.real[0].tolist() if alone else [True] * n,
        "question": _question(batch),
        "global": [False] * n if marked is None or not alone else marked[0].tolist(),
        "layers": [own for own in layers if own is not None and len(own["heads"][0]["low"]) == n],
        "answer": _answer(learner.objective.name, said[number]),
    }


def _question(batch: Batch) -> list[bool] | None:
    """Which tokens are of the first of two texts; None where there is one alone."""
    if batch.types is None or not bool(batch.types[0][batch.real[0]].any()):
        return None
    found: list[bool] = (batch.types[0] == 0).tolist()
    return found


def _example(task: Task) -> int | None:
    """The longest of the first dev examples that is not too long."""
    lengths = {
        number: int(task.batch([number], "dev").real.sum())
        for number in range(min(16, len(task.dev)))
    }
    short = {number: own for number, own in lengths.items() if own <= LONGEST}
    return max(short, key=lambda number: short[number]) if short else None


def _answer(objective: str, said: Any) -> dict[str, Any] | None:
    if objective != "spans" or not said:
        return None
    start, end, score = said[0]
    return {"start": start, "end": end, "score": score}


def _layer(
    mechanism: Mechanism, q: Tensor, k: Tensor, v: Tensor, setting: Setting
) -> dict[str, Any] | None:
    if q.shape[2] != k.shape[2]:
        return None
    heads = [own._asdict() for own in sight_of(mechanism, q, k.shape[2], setting)]
    return {"mechanism": type(mechanism).__name__, "heads": heads}
