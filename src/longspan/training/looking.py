"""What a trained model looks at in one real text, for reports to draw."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional.reach import integer_reach
from ..nn import LearnedWindow, Mechanism, Setting
from ..patterns import Pattern
from ..tasks import Task
from .learner import Learner, on_device
from .measuring import watched

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
    was = learner.training
    learner.eval()
    with watched(learner) as seen, learner.autocast():
        scores = learner.objective.scores(learner, batch, padded)
        said = learner.objective.decoded(learner, scores, batch)
    layers = [_layer(mechanism, *inputs) for mechanism, inputs in seen]
    learner.train(was)
    tokens = batch.tokens[0] if batch.source is None else batch.source["tokens"][0]
    n, marked = len(tokens), batch.global_tokens
    alone = batch.source is None
    return {
        "task": task.name,
        "number": number,
        "tokens": task.texts(tokens.tolist()),
        "real": batch.real[0].tolist() if alone else [True] * n,
        "question": (batch.types[0] == 0).tolist() if batch.types is not None else None,
        "global": [False] * n if marked is None or not alone else marked[0].tolist(),
        "layers": [own for own in layers if own is not None and len(own["heads"][0]["low"]) == n],
        "answer": _answer(learner.objective.name, said[number]),
    }


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
    n, m, heads = q.shape[2], k.shape[2], q.shape[1]
    if n != m:
        return None
    whole = _sees_all(setting, n, q.device)
    exists = _exists(mechanism, q, m, setting)
    reach = mechanism.last_reach if isinstance(mechanism, LearnedWindow) else None
    found = []
    for head in range(heads):
        own = exists[0, min(head, exists.shape[1] - 1)] & ~whole[None, :]
        # Every token is told of itself, whatever it sees.
        own = own | torch.eye(n, dtype=torch.bool, device=own.device)
        own[whole] = True
        low = own.int().argmax(-1)
        high = n - 1 - own.flip(-1).int().argmax(-1)
        at = torch.arange(n, device=own.device)
        far = torch.maximum(at - low, high - at).float() if reach is None else reach[0, head]
        found.append({"low": low.tolist(), "high": high.tolist(), "reach": far.tolist()})
    return {"mechanism": type(mechanism).__name__, "heads": found}


def _sees_all(setting: Setting, n: int, device: torch.device) -> Tensor:
    if setting.global_tokens is None:
        return torch.zeros(n, dtype=torch.bool, device=device)
    return setting.global_tokens[0]


def _exists(mechanism: Mechanism, q: Tensor, m: int, setting: Setting) -> Tensor:
    """Which pairs exist, bool `(1, H|1, N, M)`."""
    asked = mechanism.asks(q, m, setting)
    exists = _dense(asked.pattern, q.shape[2], m, q.device)
    at = torch.arange(m, device=q.device)
    distance = (at[None, :] - at[:, None]).abs()
    for weight in asked.weight:
        reach = integer_reach(weight, q.device)
        if reach is None:
            continue
        within = distance <= reach[..., None]
        if weight.exempt is not None:
            within = within | _dense(weight.exempt, q.shape[2], m, q.device)
        exists = exists & within
    if setting.key_padding is not None:
        exists = exists & setting.key_padding[:, None, None]
    return exists


def _dense(pattern: Pattern, n: int, m: int, device: torch.device) -> Tensor:
    """`(1, H|1, N, M)`."""
    found = pattern.dense(n, m, device=device)
    return found.reshape((1,) * (4 - found.dim()) + tuple(found.shape))
