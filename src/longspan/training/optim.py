"""What learns in a stage, and how fast."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ..nn import LearnedWindow, parameter_groups
from .stage import Stage

__all__ = ["freeze", "learning_rate_share", "optimizer_of", "set_learning_rate"]


def freeze(model: nn.Module, stage: Stage) -> None:
    """Takes the gradient from what does not train in a stage; what was frozen before stays."""
    if stage.trains == "all":
        return
    windows = [own for own in model.modules() if isinstance(own, LearnedWindow)]
    reach = {id(p) for window in windows for p in (window.W_p, window.U_d)}
    if not reach and stage.trains == "reach":
        raise ValueError(
            f"stage {stage.name!r}: trains='reach', but the model has no learned window"
        )
    for parameter in model.parameters():
        if (id(parameter) in reach) == (stage.trains == "all but reach"):
            parameter.requires_grad_(False)


def optimizer_of(model: nn.Module, stage: Stage) -> torch.optim.Optimizer:
    """AdamW, in one launch for all weights where PyTorch can. Vectors and reach networks have no
    weight decay: it would draw reaches towards one another.
    """
    groups: list[dict[str, Any]] = []
    for own in parameter_groups(model, stage.learning_rate, reach_factor=stage.reach_rate):
        matrices = [p for p in own["params"] if p.dim() > 1 and own["name"] != "reach"]
        known = {id(p) for p in matrices}
        vectors = [p for p in own["params"] if id(p) not in known]
        for params, decay in ((matrices, stage.weight_decay), (vectors, 0.0)):
            if params:
                groups.append({**own, "params": params, "weight_decay": decay, "top": own["lr"]})
    if not groups:
        raise ValueError(f"stage {stage.name!r}: nothing trains, every weight is frozen")
    fused = all(p.device.type in ("cpu", "cuda") for group in groups for p in group["params"])
    return torch.optim.AdamW(groups, betas=stage.betas, eps=stage.eps, fused=fused)


def learning_rate_share(stage: Stage, step: int) -> float:
    """Which share of the highest learning rate step number `step`, from 0, has."""
    warmup = stage.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if stage.schedule == "constant":
        return 1.0
    done = (step - warmup) / max(stage.steps - warmup, 1)
    if stage.schedule == "linear":
        return 1.0 - done
    return (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["top"] * share
