"""Trained models in folders: weights as safetensors, what they are as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..models import Config
from ..models.saving import STACKS
from ..nn import LearnedWindow, MultiheadAttention
from ..nn.describing import described, mechanism_from
from ..nn.storing import Pair, share
from ..tasks import Task
from .learner import Learner
from .objectives import objective_of
from .records import whole_folder

__all__ = [
    "carry_over",
    "describe_learner",
    "described_model",
    "load_learner",
    "read",
    "save_learner",
    "take_reach",
]

FILES = Pair("model.safetensors", "model.json", 1, "a trained model")


def describe_learner(learner: Learner) -> dict[str, Any]:
    """All but the weights, as JSON can hold it."""
    kind: Any = type(learner.body)
    config: Any = learner.body.config
    return {
        "kind": kind.__name__,
        "config": config.as_dict(),
        "mechanisms": [
            [described(own) for own in learner.body.get_submodule(path).mechanisms]  # type: ignore[union-attr]
            for path in STACKS[kind]
        ],
        "objective": learner.objective.name,
        "settings": learner.objective.settings,
    }


def save_learner(learner: Learner, folder: Path, state: dict[str, Tensor], task: Task) -> None:
    """Writes a model with its head, and how it reads new input; the folder is whole or as it was.

    Args:
        state: its weights, in one piece.
        task: that it was trained for.
    """
    with whole_folder(folder) as place:
        FILES.write(place, state, describe_learner(learner))
        task.save(place)


def described_model(folder: Path) -> dict[str, Any]:
    """What `save_learner` wrote of a model, without its weights."""
    return FILES.describe("load", folder)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `save_learner` wrote: the description and the weights."""
    description = described_model(folder)
    return description, FILES.read(folder, description)


def load_learner(folder: Path) -> Learner:
    """The model that `save_learner` wrote, in evaluation mode, on the CPU."""
    description, tensors = read(folder)
    kinds: dict[str, Any] = {kind.__name__: kind for kind in STACKS}
    stacks = [[mechanism_from(own) for own in stack] for stack in description["mechanisms"]]
    body = kinds[description["kind"]](Config(**description["config"]), *stacks)
    learner = Learner(body, objective_of(description["objective"], description["settings"]))
    learner.load_state_dict(tensors)
    share(learner, description["same"])
    return learner.eval()


def carry_over(learner: Learner, folder: Path, learned: int | None = None) -> None:
    """Gives a model the weights of the one before it, which may have another mechanism and other
    positions: what the other mechanism has not is as the mechanism makes it, projections of global
    tokens are copies of the layer's, and positions go on with copies of those that were learned. A
    head for another objective, and draws of random blocks, stay its own.

    Args:
        learned: how many positions of that model were; None for all.
    """
    description, tensors = read(folder)
    kind = type(learner.body).__name__
    if description["kind"] != kind:
        raise ValueError(
            f"{folder} has a model of kind {description['kind']}, and the stage needs {kind}"
        )
    _check_windows(learner, description, folder)
    same_head = description["objective"] == learner.objective.name
    for name, mine in learner.state_dict().items():
        if name.endswith(".table") or (name.startswith("head.") and not same_head):
            continue
        theirs = tensors.get(name)
        if theirs is None and ".mechanism." in name:
            continue
        if theirs is not None and name.endswith("positions.weight"):
            count = len(theirs) if learned is None else min(learned, len(theirs))
            theirs = theirs[torch.arange(len(mine)) % count]
        if theirs is None or theirs.shape != mine.shape:
            if name.startswith("head."):
                continue
            there = "nothing" if theirs is None else tuple(theirs.shape)
            raise ValueError(
                f"{name} is of shape {tuple(mine.shape)} here and {there} in {folder}: the models "
                "differ; make them of the same sizes, or begin the stage with fresh=True, which "
                "takes no more than the reach networks of the stage before it"
            )
        with torch.no_grad():
            mine.copy_(theirs)
    for name, part in learner.named_modules():
        if isinstance(part, MultiheadAttention):
            before = f"{name}.mechanism.q_global."
            if not any(place.startswith(before) for place in tensors):
                part.copy_projections()
    _rescale(learner, description)


def _check_windows(learner: Learner, description: dict[str, Any], folder: Path) -> None:
    """Raises unless the networks of learned windows mean what they meant there."""
    before = [own for stack in description["mechanisms"] for own in stack]
    for own, was in zip(learner.mechanisms(), before, strict=False):
        if isinstance(own, LearnedWindow) and was["kind"] == "LearnedWindow":
            own.need_alike(f"the learned windows of {folder}", was)


def _rescale(learner: Learner, description: dict[str, Any]) -> None:
    """The running factor of causal windows is a number of tokens: it grows with the budget, and one
    without a budget says nothing of it.
    """
    before = [own for stack in description["mechanisms"] for own in stack]
    for own, was in zip(learner.mechanisms(), before, strict=True):
        # Only a learned window has one: with another mechanism there was none.
        if not isinstance(own, LearnedWindow) or was["kind"] != "LearnedWindow":
            continue
        if was["budget"] is not None:
            own.factor.mul_(own.mean_reach / was["mean_reach"])
        elif own.budget is not None:
            own.factor.fill_(own.start_reach)


def take_reach(learner: Learner, folder: Path, *, frozen: bool) -> None:
    """Gives learned windows the reach networks of another model, bit by bit.

    Args:
        frozen: that they do not train, and that the other model must have them all; else windows
            that it has not keep their own.
    """
    description, tensors = read(folder)
    _check_windows(learner, description, folder)
    windows = _windows(learner)
    if not windows:
        raise ValueError("reach_from: the model has no learned window")
    for name, window in windows:
        places = {key: f"{name}.{key}" for key in window.NETWORK}
        source = {key: tensors[place] for key, place in places.items() if place in tensors}
        if not source and not frozen:
            continue
        if not source:
            raise ValueError(f"reach_from: {folder} has no learned window in {name}")
        window.load_reach(source)
        if not frozen:
            window.requires_grad_(True)


def _windows(learner: nn.Module) -> list[tuple[str, LearnedWindow]]:
    found = learner.named_modules()
    return [(name, own) for name, own in found if isinstance(own, LearnedWindow)]
