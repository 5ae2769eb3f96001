"""What a trained model says to new input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..tasks import Batch
from .learner import Learner, on_device

__all__ = ["outputs_to"]

BATCH = 4


@torch.no_grad()
def outputs_to(
    learner: Learner, rows: int, batch_of: Callable[[Sequence[int]], Batch]
) -> dict[int, Any]:
    """The model's output to every row."""
    device = next(learner.parameters()).device
    found: dict[int, Any] = {}
    for first in range(0, rows, BATCH):
        numbers = list(range(first, min(first + BATCH, rows)))
        batch, padded = on_device(batch_of(numbers), device)
        with learner.autocast():
            found |= learner.objective.predict(learner, batch, padded)
    return found
