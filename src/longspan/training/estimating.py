"""What a run will take, before it is made: a few steps of every stage, measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ..memory import peak_growth
from ..nn import LearnedWindow
from ..tasks import Batch, Task
from .accelerating import accelerator_for
from .building import build, tasks_of
from .config import RunConfig
from .evaluating import outputs_of
from .learner import Learner
from .loop import Stepper
from .optim import AnyOptimizer, freeze, matrices_of_blocks, optimizer_of
from .sampler import Sampler
from .stage import Stage

__all__ = ["StageCost", "estimate"]

# Timed steps of a stage, at most.
STEPS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """What one stage takes. Figures that could not be measured are None.

    Attributes:
        name: of the stage.
        parameters: of the model, all of them.
        trained: those that train.
        reach: those of the reach networks, whether they train or not.
        held: bytes of weights, gradients and the optimiser's state, counted.
        memory: bytes at the peak of a step: what is held, and what the step itself takes, measured.
        step: seconds.
        evaluation: seconds of one.
        seconds: of the whole stage, steps and evaluations.
        examples: that were measured at once, of those that a step has.
        why: why something is None, in words.
    """

    name: str
    parameters: int
    trained: int
    reach: int
    held: int
    memory: int | None = None
    step: float | None = None
    evaluation: float | None = None
    seconds: float | None = None
    examples: int = 0
    why: str = ""


def estimate(config: RunConfig, *, limit: float = 2.0, task: Task | None = None) -> list[StageCost]:
    """Builds the model of each stage and makes some steps with it, on batches of the task, where a
    run would be made. Nothing is written.

    Weights, gradients and the optimiser's state are counted. What a step takes beyond them is the
    growth of memory at its peak, and its time is a median. Where a step takes longer than the
    limit it is measured with fewer examples, and time and memory are taken to grow with them.

    Args:
        limit: seconds for the steps of a stage, about.
        task: the task, where it is not one that `longspan.tasks.make` knows.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            "an estimate is made by one process: start it without accelerate launch or torchrun"
        )
    accelerator = accelerator_for()
    tasks = tasks_of(config, task)
    stages = zip(config.stages, tasks, strict=True)
    return [_stage(config, stage, own, tasks, accelerator, limit) for stage, own in stages]


def _stage(
    config: RunConfig, stage: Stage, task: Task, tasks: list[Task], accelerator: Any, limit: float
) -> StageCost:
    device: torch.device = accelerator.device
    learner = _learner(config, stage, task, tasks)
    counts = _counts(learner)
    free = _free_memory(device)
    held = _held(learner, stage)
    if free is not None and held > free:
        why = f"weights, gradients and optimiser take more than the {_gib(free)} that are free"
        return StageCost(name=stage.name, held=held, why=why, **counts)
    optimizer: AnyOptimizer | None = None
    try:
        learner.to(device)
        optimizer = optimizer_of(learner, stage)
        stepper = Stepper(accelerator, learner, learner, optimizer, stage)
        found = _measured(stepper, task, config.seed, limit, free)
        evaluation = _evaluation(learner, task, stage, device, limit)
    except torch.OutOfMemoryError:
        return StageCost(
            name=stage.name, held=held, why="a step does not fit into the memory", **counts
        )
    step, growth, examples = found
    rounds = _evaluations(stage)
    return StageCost(
        name=stage.name,
        held=held,
        memory=None if growth is None else held + growth,
        step=step,
        evaluation=evaluation,
        seconds=stage.steps * step + rounds * evaluation,
        examples=examples,
        why="" if growth is not None else "this system does not tell how much memory a step takes",
        **counts,
    )


def _learner(config: RunConfig, stage: Stage, task: Task, tasks: list[Task]) -> Learner:
    """A model like the stage's; what it starts from costs nothing, and is left where it is."""
    learner = build(config, stage, task, tasks)
    freeze(learner, stage)
    learner.in_bf16 = config.precision == "bf16"
    learner.change_blocks(compiled=config.compiled, recomputed=stage.checkpointing)
    return learner.train()


def _counts(learner: Learner) -> dict[str, int]:
    weights = list(learner.parameters())
    windows = [own for own in learner.modules() if isinstance(own, LearnedWindow)]
    return {
        "parameters": sum(own.numel() for own in weights),
        "trained": sum(own.numel() for own in weights if own.requires_grad),
        "reach": sum(own.numel() for window in windows for own in window.network.values()),
    }


def _held(learner: Learner, stage: Stage) -> int:
    """Bytes that are there whatever the batch: weights and buffers, and for weights that train a
    gradient and the optimiser's state.
    """
    whole = [*learner.parameters(), *learner.buffers()]
    total = sum(own.numel() * own.element_size() for own in whole)
    # Muon has one matrix beside the weight where AdamW has two.
    inside = matrices_of_blocks(learner) if stage.optimizer == "muon" else set()
    for own in learner.parameters():
        if own.requires_grad:
            total += own.numel() * own.element_size() * (2 if id(own) in inside else 3)
    return total


def _measured(
    stepper: Stepper, task: Task, seed: int, limit: float, free: int | None
) -> tuple[float, int | None, int]:
    """Seconds of a step; bytes by which it grows memory beyond what is held; and how many examples
    were measured at once.
    """
    stage, device = stepper.stage, stepper.accelerator.device
    lengths = task.lengths("train") if stage.by_length else None
    size = stage.batch * stage.accumulate
    sampler = Sampler(len(task.train), seed, lengths=lengths, size=size)
    made = 0

    def steps(batch: int, accumulate: int) -> Callable[[], object]:
        def one() -> object:
            nonlocal made
            batches: list[Batch] = [
                task.batch(numbers, "train")
                for numbers in sampler.step(made, batch, accumulate, 0, 1)
            ]
            made += 1
            return stepper.step(max(min(made, stage.steps) - 1, 0), batches)

        return one

    gradients = sum(
        own.numel() * own.element_size()
        for own in stepper.learner.parameters()
        if own.requires_grad
    )
    # The first step of a process loads, and of a model allocates, what later ones have.
    smallest = steps(1, 1)
    smallest()
    grown = peak_growth(smallest, device)
    # The fastest: one that was held up would have the rest measured with too few examples.
    alone = _seconds(smallest, device)
    if 3 * alone < limit:
        alone = min(alone, _seconds(smallest, device), _seconds(smallest, device))
    batch, accumulate = stage.batch, stage.accumulate
    if alone * batch * accumulate > limit:
        accumulate = 1
    if alone * batch > limit:
        batch = max(1, int(limit / max(alone, 1e-9)))
    if free is not None and grown is not None and grown * batch > free:
        batch = max(1, free // grown)
    if (batch, accumulate) != (1, 1):
        own = steps(batch, accumulate)
        begin = time.perf_counter()
        grown = peak_growth(own, device)
    else:
        own, begin = smallest, time.perf_counter()
    times = [_seconds(own, device)]
    while len(times) < STEPS and time.perf_counter() - begin + times[-1] < limit:
        times.append(_seconds(own, device))
    whole = stage.batch * stage.accumulate
    step = median(times) * whole / (batch * accumulate)
    if grown is not None:
        # The gradients that a step makes are counted with what is held.
        grown = max(grown - gradients, 0) * stage.batch // batch
    return step, grown, batch * accumulate


def _evaluation(
    learner: Learner, task: Task, stage: Stage, device: torch.device, limit: float
) -> float:
    """Seconds of one evaluation, from as many batches of it as there is time for."""
    most = stage.evaluate_on
    parts = [len(own) for own in (task.dev, task.held or ())]
    count, held = parts if most is None else [min(most, own) for own in parts]
    if count == 0:
        return 0.0
    size, best = min(count, stage.batch), float("inf")
    while True:
        numbers = list(range(size))

        def some(numbers: list[int] = numbers) -> object:
            return outputs_of(learner, task, numbers, batch=stage.batch, device=device)

        # What is done once, whatever the examples, has the smaller share the more there are; one
        # that was held up does not count.
        took = _seconds(some, device)
        best = min(best, took * (count + held) / size)
        if size == count or 3 * took > limit:
            return best
        size = min(count, 2 * size)


def _evaluations(stage: Stage) -> int:
    """How often a stage is evaluated: after its last step always, or where there is none."""
    every = stage.evaluate_every
    return 1 if every is None else max(-(-stage.steps // every), 1)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def _free_memory(device: torch.device) -> int | None:
    """Bytes that can be had, if somebody tells."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
