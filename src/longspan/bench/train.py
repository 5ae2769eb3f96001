"""What the trainer adds to the bare step: the same model and batches, by turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..models import Config, LanguageModel
from ..nn import LearnedWindow
from ..tasks import Batch
from ..training.accelerating import accelerator_for
from ..training.learner import Learner, on_device
from ..training.loop import Place, Stepper, run_steps
from ..training.objectives import objective_of
from ..training.optim import optimizer_of
from ..training.records import Metrics
from ..training.sampler import Sampler
from ..training.stage import Stage
from .machine import setting
from .records import Sample, write_json
from .timing import Effort, interleaved

__all__ = ["TARGET", "TrainReport", "measure", "save"]

# What the trainer may add, in percent.
TARGET = 5.0

VOCABULARY = 256


class _RandomBytes:
    """Rows of random bytes, each followed by the next."""

    def __init__(self, length: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(0, VOCABULARY, (256, length + 1), generator=generator)
        self.train = range(len(self.rows))

    def batch(self, numbers: list[int], split: str = "train") -> Batch:
        rows = self.rows[numbers]
        real = torch.ones(len(numbers), rows.shape[1] - 1, dtype=torch.bool)
        targets = {"tokens": rows[:, 1:]}
        return Batch(tokens=rows[:, :-1], real=real, targets=targets, numbers=numbers)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainReport:
    """Seconds of a step, bare and by the trainer.

    Attributes:
        added: what the trainer adds to the bare step, in percent.
        sizes: of the model and the batch.
        machine: where this was measured.
    """

    bare: Sample
    trainer: Sample
    added: float
    sizes: dict[str, int]
    machine: dict[str, Any]


def measure(*, threads: int = 1, device: str = "cpu", quick: bool = False) -> TrainReport:
    """Times steps of a small causal model with a learned window, bare and by the trainer: with the
    sampler, the guard against numbers that are not finite, learning rates, a line of metrics every
    ten steps and all else that is done in each step. Evaluation and checkpoints are not counted.

    Both start with the same weights, have the same examples in the same order, optimiser and
    learning rate, and take turns in one process, so that they compute the same all the while.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    sizes = {"width": 128, "layers": 4, "heads": 4, "length": 512, "batch": 4, "steps": 10}
    if quick:
        sizes |= {"width": 32, "layers": 1, "length": 64, "steps": 2}
    # A bare loop has no schedule.
    stage = Stage(steps=sizes["steps"], batch=sizes["batch"], warmup=0, schedule="constant")
    task: Any = _RandomBytes(sizes["length"])
    accelerator = accelerator_for(cpu=device == "cpu")
    try:
        with tempfile.TemporaryDirectory() as folder:
            metrics = Metrics(Path(folder) / "metrics.jsonl")
            learners = [_learner(sizes, accelerator.device) for _ in range(2)]
            bare = _bare(task, stage, learners[0], accelerator.device)
            trainer = _trainer(task, stage, learners[1], accelerator, metrics)
            effort = Effort(rounds=3, least=3) if quick else Effort(rounds=21, least=11, seconds=90)
            found = interleaved(
                {"bare": bare, "trainer": trainer},
                effort,
                wall=threads > 1 or device != "cpu",
            )
            metrics.close()
    finally:
        torch.set_num_threads(before)
    each = {name: _of_one_step(own, sizes["steps"]) for name, own in found.items()}
    added = 100 * (each["trainer"].median / each["bare"].median - 1)
    return TrainReport(
        bare=each["bare"],
        trainer=each["trainer"],
        added=added,
        sizes={**sizes, "threads": threads},
        machine=setting(threads),
    )


def save(report: TrainReport, path: Path) -> None:
    content = asdict(report)
    content |= {name: getattr(report, name)._asdict() for name in ("bare", "trainer")}
    write_json(path, content)


def _learner(sizes: dict[str, int], device: torch.device) -> Learner:
    torch.manual_seed(0)
    width, heads = sizes["width"], sizes["heads"]
    config = Config(
        vocab=VOCABULARY,
        width=width,
        layers=sizes["layers"],
        heads=heads,
        length=sizes["length"],
        positions="rotary",
    )
    body = LanguageModel(
        config,
        lambda layer: LearnedWindow(width, heads, mean_reach=32, max_reach=64, causal=True),
    )
    return Learner(body, objective_of("next")).to(device)


def _bare(task: Any, stage: Stage, learner: Learner, device: torch.device) -> Callable[[], None]:
    """As few lines as a training loop can have."""
    sampler = Sampler(len(task.train), 0)
    examples = [sampler.step(step, stage.batch, 1, 0, 1)[0] for step in range(stage.steps)]
    optimizer = optimizer_of(learner, stage)
    weights = list(learner.parameters())
    learner.train()

    def steps() -> None:
        for numbers in examples:
            batch, _ = on_device(task.batch(numbers), device)
            loss = learner(batch, False) / batch.tokens.numel()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        _wait(device)

    return steps


def _trainer(
    task: Any, stage: Stage, learner: Learner, accelerator: Any, metrics: Metrics
) -> Callable[[], None]:
    model = accelerator.prepare_model(learner)
    stepper = Stepper(accelerator, model, learner, optimizer_of(learner, stage), stage)

    def nothing(*_: object) -> None:
        return None

    def steps() -> None:
        run_steps(
            stepper,
            task,
            0,
            Place(),
            record=metrics.write,
            evaluate=nothing,
            save=nothing,
        )
        _wait(accelerator.device)

    return steps


def _wait(device: torch.device) -> None:
    """Until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _of_one_step(sample: Sample, steps: int) -> Sample:
    return Sample(
        sample.median / steps, sample.fastest / steps, sample.slowest / steps, sample.rounds
    )
