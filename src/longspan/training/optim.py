"""What learns in a stage, and how fast."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..models.block import Block
from ..nn import LearnedWindow, parameter_groups
from .side_by_side import SideBySide
from .stage import Stage

__all__ = [
    "AnyOptimizer",
    "freeze",
    "learning_rate_share",
    "matrices_of_blocks",
    "optimizer_of",
    "set_learning_rate",
]

AnyOptimizer = Optimizer | SideBySide


def freeze(model: nn.Module, stage: Stage) -> None:
    """Takes the gradient from what does not train in a stage: a reach that it has from elsewhere is
    frozen. What was frozen before stays.
    """
    windows = [own for own in model.modules() if isinstance(own, LearnedWindow)]
    reach = {id(p) for window in windows for p in window.network.values()}
    if not reach and stage.trains == "reach":
        raise ValueError(
            f"stage {stage.name!r}: trains='reach', but the model has no learned window"
        )
    reach_trains = stage.trains != "all but reach" and stage.reach_from is None
    for parameter in model.parameters():
        if not (reach_trains if id(parameter) in reach else stage.trains != "reach"):
            parameter.requires_grad_(False)


def optimizer_of(model: nn.Module, stage: Stage) -> AnyOptimizer:
    """AdamW, in one launch for all weights where PyTorch can; or Muon for the matrices of blocks
    and AdamW for the rest. Vectors and reach networks have no weight decay: it would draw reaches
    towards one another.
    """
    inside = matrices_of_blocks(model) if stage.optimizer == "muon" else set()
    groups: list[dict[str, Any]] = []
    turned: list[dict[str, Any]] = []
    learns = any(isinstance(own, LearnedWindow) for own in model.modules())
    factor = stage.reach_rate if learns else 1.0
    for own in parameter_groups(model, stage.learning_rate, reach_factor=factor):
        reach = own["name"] == "reach"
        muon = [p for p in own["params"] if id(p) in inside]
        matrices = [p for p in own["params"] if p.dim() > 1 and not reach and id(p) not in inside]
        vectors = [p for p in own["params"] if p.dim() < 2 or reach]
        decayed = {**own, "top": own["lr"], "weight_decay": stage.weight_decay}
        if muon:
            rate = own["lr"] * stage.matrix_rate
            turned.append({**decayed, "params": muon, "lr": rate, "top": rate})
        if matrices:
            groups.append({**decayed, "params": matrices})
        if vectors:
            groups.append({**decayed, "params": vectors, "weight_decay": 0.0})
    if not groups and not turned:
        raise ValueError(f"stage {stage.name!r}: nothing trains, every weight is frozen")
    made: list[Optimizer] = []
    if turned:
        # Steps of the size that AdamW's have, so that one learning rate serves both.
        made.append(torch.optim.Muon(turned, adjust_lr_fn="match_rms_adamw"))
    if groups:
        fused = all(p.device.type in ("cpu", "cuda") for group in groups for p in group["params"])
        made.append(torch.optim.AdamW(groups, betas=stage.betas, eps=stage.eps, fused=fused))
    return made[0] if len(made) == 1 else SideBySide(*made)


def matrices_of_blocks(model: nn.Module) -> set[int]:
    """The matrices that Muon is for: those between vectors of the layers, no embeddings."""
    parts = [
        part for block in model.modules() if isinstance(block, Block) for part in block.modules()
    ]
    return {id(part.weight) for part in parts if isinstance(part, nn.Linear)}


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


def set_learning_rate(optimizer: AnyOptimizer, share: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["top"] * share
