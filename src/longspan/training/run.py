"""A whole run: stage after stage, from a config to a result."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..tasks import Task
from . import checkpoint
from .accelerating import accelerator_for, is_split, wrapped
from .building import build, tasks_of
from .config import RunConfig
from .evaluating import Evaluation, evaluate
from .folder import TakenError, check_data, check_folder, claimed, finished
from .learner import Learner
from .looking import looks
from .loop import Place, Stepper, run_steps
from .measuring import forget_peak, peak_memory
from .optim import AnyOptimizer, freeze, optimizer_of
from .processes import gathered, process_count, process_number, wait
from .progress import Shown
from .records import Metrics, clean, finite, write_json
from .saving import carry_over, save_learner, take_reach
from .sharding import sharding_asked, unsharded, whole_state
from .stage import Stage
from .starting import check_start, described_start, is_run, stage_of
from .tensorboard import Board, need_tensorboard

__all__ = ["check_reach_sources", "train"]


def train(config: RunConfig, *, resume: bool = False, task: Task | None = None) -> dict[str, Any]:
    """Runs all stages, and gives what `result.json` then holds.

    The run's folder gets `config.json`, `metrics.jsonl`, `checkpoints/`, a folder for each stage in
    `stages/` with the model and what it needs to read new input, and at the end `predictions.json`,
    `looks.json` and `result.json`.
    Several processes (`accelerate launch`, `torchrun`) make the same call.

    Args:
        resume: goes on from the last checkpoint of the folder, or begins where there is none. On
            one device it ends as if it had never been interrupted, bit for bit.
        task: the task, where it is not one that `longspan.tasks.make` knows.

    Raises:
        NotFiniteError: the loss or a gradient is NaN or infinite. The last checkpoint is from
            before that.
        TakenError: another process makes this run.
    """
    accelerator = accelerator_for()
    with _claimed(config.folder, accelerator.device):
        run = _Run(config, resume, task, accelerator)
        try:
            return run.all_stages()
        finally:
            run.close()


@contextmanager
def _claimed(folder: Path, device: torch.device) -> Iterator[None]:
    """The folder for all processes of this run: the first one has it, and all hear if it has
    not.
    """
    with ExitStack() as held:
        taken = ""
        if process_number() == 0:
            try:
                held.enter_context(claimed(folder))
            except TakenError as error:
                taken = str(error)
        taken, *_ = gathered(taken, device)
        if taken:
            raise TakenError(taken)
        yield


@dataclass(slots=True)
class _Running:
    """What there is of the stage that runs."""

    learner: Learner
    optimizer: AnyOptimizer
    task: Task
    last: tuple[Evaluation, dict[int, Any]] | None = None


class _Run:
    """One call of `train`."""

    def __init__(
        self, config: RunConfig, resume: bool, task: Task | None, accelerator: Any
    ) -> None:
        self.config, self.folder = config, config.folder
        self.accelerator = accelerator
        self.device: torch.device = accelerator.device
        self.first = process_number() == 0
        self.metrics: Metrics | None = None
        self.board: Board | None = None
        self.place = Place()
        self.done = finished(self.folder) if resume else None
        self.from_path: Path | None = None
        check_folder(config, resume)
        check_start(config)
        check_reach_sources(config)
        if config.tensorboard:
            need_tensorboard()
        # Nobody writes before everybody has looked.
        wait()
        if self.done is not None:
            return
        forget_peak(self.device)
        self.tasks = tasks_of(config, task)
        for own in self.tasks:
            own.check_reader()
        if resume:
            self.from_path = checkpoint.latest(self.folder)
            check_data(self.folder, [own.describe() for own in self.tasks])
        if self.from_path is not None:
            self.place = Place(**checkpoint.state_of(self.from_path))
        else:
            self._check_models()
        if self.first:
            clean(self.folder)
            write_json(self.folder / "config.json", self._described())
            # Last: nobody would close them, had the others failed.
            self.metrics = Metrics(self.folder / "metrics.jsonl", self.place.metrics)
            if config.tensorboard:
                self.board = Board(self.folder / "tensorboard", self.place.step)

    def _check_models(self) -> None:
        """Makes those of all stages once, so that what is wrong with one is said before anything is
        written or trained.
        """
        for stage, task in zip(self.config.stages, self.tasks, strict=True):
            learner = build(self.config, stage, task, self.tasks)
            freeze(learner, stage)
            optimizer_of(learner, stage)

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()
        if self.board is not None:
            self.board.close()

    def _described(self) -> dict[str, Any]:
        tasks = [own.describe() for own in self.tasks]
        found = {"tasks": tasks, "processes": process_count(), "versions": versions()}
        found["start"] = described_start(self.config.start)
        found["split"] = sharding_asked() and process_count() > 1
        # Where paths that are not absolute begin.
        found["from"] = str(Path.cwd())
        return {**self.config.as_dict(), "described": found}

    def all_stages(self) -> dict[str, Any]:
        if self.done is not None:
            return self.done
        running: _Running | None = None
        for number in range(self.place.stage, len(self.config.stages)):
            running = self._stage(number)
        assert running is not None
        return self._result(running)

    def _stage(self, number: int) -> _Running:
        stage, task, place = self.config.stages[number], self.tasks[number], self.place
        if place.stage != number:
            place.stage, place.done = number, 0
        # The model of a stage that ended is gone, and so is its memory.
        learner = self._learner(number, stage, task)
        accelerator = accelerator_for(learner)
        model = wrapped(accelerator, learner)
        running = _Running(learner, optimizer_of(learner, stage), task)
        if self.config.compiled and is_split(model):
            raise ValueError(
                "compiled: FSDP puts blocks together in hooks, which are not compiled; leave one "
                "of the two out"
            )
        learner.change_blocks(compiled=self.config.compiled, recomputed=stage.checkpointing)
        _seed(self.config.seed * 1_000_003 + number * 1009 + process_number())
        if self.from_path is not None:
            checkpoint.restore(self.from_path, learner, running.optimizer, self.device)
            self.from_path = None

        def evaluated(shown: Shown) -> None:
            running.last = self._evaluate(running, stage, shown)
            found, _ = running.last
            line = {"step": place.step, "stage": stage.name, "kind": "dev", "loss": found["loss"]}
            line |= {key: value for key, value in found["metrics"].items() if key not in line}
            rest = {key: value for key, value in found.items() if key != "loss"}
            self._record({**line, **rest, "seconds": place.seconds})

        def saved() -> None:
            place.metrics = 0 if self.metrics is None else self.metrics.size()
            if self.board is not None:
                self.board.flush()
            checkpoint.save(self.folder, learner, running.optimizer, place.as_dict(), self.device)
            wait()

        stepper = Stepper(accelerator, model, learner, running.optimizer, stage)
        run_steps(
            stepper,
            task,
            self.config.seed,
            place,
            record=self._record,
            evaluate=evaluated,
            save=saved,
        )
        if running.last is None and task.held is not None:
            # The stage had ended, but for its folder: what a task chooses is in no checkpoint.
            running.last = self._evaluate(running, stage)
        state = whole_state(learner, keep=self.first)
        if self.first:
            save_learner(learner, self._kept(stage.name), state, task)
        wait()
        return running

    def _learner(self, number: int, stage: Stage, task: Task) -> Learner:
        """The model of a stage, with the weights that it starts from."""
        learner = build(self.config, stage, task, self.tasks)
        before = self.config.stages[number - 1].name if number else None
        if before is not None and not stage.fresh:
            carry_over(learner, self._kept(before), learned=self._learned(number))
        if stage.reach_from is not None:
            take_reach(learner, self._reach_source(stage), frozen=True)
        elif before is not None and stage.fresh and _has_reach(learner):
            take_reach(learner, self._kept(before), frozen=False)
        freeze(learner, stage)
        learner.in_bf16 = self.config.precision == "bf16"
        return learner.to(self.device)

    def _learned(self, number: int) -> int | None:
        """How many positions of the model before a stage have learned something; None for all, as
        they have where a run starts from weights.
        """
        if self.config.start is not None:
            return None
        fresh = [n for n in range(number) if self.config.stages[n].fresh]
        return max(task.length for task in self.tasks[fresh[-1] if fresh else 0 : number])

    def _kept(self, stage: str) -> Path:
        return self.folder / "stages" / stage

    def _reach_source(self, stage: Stage) -> Path:
        assert stage.reach_from is not None
        if any(own.name == stage.reach_from for own in self.config.stages):
            return self._kept(stage.reach_from)
        return stage_of(stage.reach_from)

    def _evaluate(
        self, running: _Running, stage: Stage, shown: Shown | None = None
    ) -> tuple[Evaluation, dict[int, Any]]:
        with unsharded(running.learner) as learner:
            return evaluate(
                learner,
                running.task,
                batch=stage.batch,
                most=stage.evaluate_on,
                device=self.device,
                told=None if shown is None else shown.evaluated,
            )

    def _record(self, line: dict[str, Any]) -> None:
        if self.metrics is not None:
            self.metrics.write(line)
        if self.board is not None:
            self.board.write(line)

    def _result(self, running: _Running) -> dict[str, Any]:
        stage, place = self.config.stages[-1], self.place
        # A run that was ended after its last step has still to be measured.
        found, outputs = running.last or self._evaluate(running, stage)
        result = {
            "task": running.task.name,
            "mechanism": _label(self.config),
            "metric": running.task.metric,
            "lower_is_better": running.task.lower_is_better,
            "metrics": found["metrics"],
            "also": list(running.task.also),
            "loss": found["loss"],
            "examples": len(outputs),
            "pairs": found["pairs"],
            "pairs_per_token": found["pairs_per_token"],
            "mean_reach": found.get("mean_reach"),
            "chosen": found.get("chosen"),
            "tokens_per_second": place.speed,
            "peak_memory": peak_memory(self.device),
            "seconds": place.seconds,
            "parameters": sum(own.numel() for own in running.learner.parameters()),
            "seed": self.config.seed,
            "steps": place.step,
            "processes": process_count(),
            "device": str(self.device),
            "versions": versions(),
        }
        with unsharded(running.learner) as learner:
            if self.first:
                predictions = running.task.prediction_file(outputs, "dev")
                write_json(self.folder / "predictions.json", predictions)
                seen = looks(learner, running.task, self.device)
                if seen is not None:
                    write_json(self.folder / "looks.json", seen)
                write_json(self.folder / "result.json", result)
        wait()
        return {**result, **finite(result)}


def check_reach_sources(config: RunConfig) -> None:
    """Raises when a stage takes its reach from nowhere, before the stages before it are trained."""
    before: list[str] = []
    for stage in config.stages:
        source = stage.reach_from
        if source is not None and source not in before and not is_run(source):
            near = get_close_matches(source, before, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(
                f"stage {stage.name!r}: reach_from is no stage before it and no folder of a run: "
                f"{source!r}{meant}"
            )
        before.append(stage.name)


def versions() -> dict[str, str]:
    """Of what a result may depend on."""
    found = {"python": platform.python_version()}
    for name in ("longspan", "torch", "accelerate", "transformers", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _has_reach(learner: Learner) -> bool:
    return any(type(own).__name__ == "LearnedWindow" for own in learner.mechanisms())


def _seed(seed: int) -> None:
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _label(config: RunConfig) -> str:
    """The name, or names, of the last stage's mechanism."""
    asked = config.mechanism or {"kind": "Attention"}
    layers = asked if isinstance(asked, list) else [asked]
    kinds = (str(config.stages[-1].mechanism_of(own)["kind"]) for own in layers)
    return "+".join(dict.fromkeys(kinds))
