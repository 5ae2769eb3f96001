"""What a trained model says to new input."""

from __future__ import annotations

from typing import Any

import torch

from ..tasks import Inputs
from .learner import Learner, on_device

__all__ = ["outputs_to"]

BATCH = 4


@torch.no_grad()
def outputs_to(learner: Learner, inputs: Inputs) -> dict[int, Any]:
    """The model's output to every row."""
    device = next(learner.parameters()).device
    found: dict[int, Any] = {}
    for first in range(0, inputs.rows, BATCH):
        numbers = list(range(first, min(first + BATCH, inputs.rows)))
        batch, padded = on_device(inputs.batch(numbers), device)
        with learner.autocast():
            found |= learner.objective.predict(learner, batch, padded)
    return found
