"""One stage, step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..tasks import Batch, Task
from .accelerating import alone
from .guard import NOT_AGAIN, NotFiniteError, where_it_began
from .learner import Learner, on_device
from .measuring import peak_memory, reaches
from .optim import AnyOptimizer, learning_rate_share, set_learning_rate
from .processes import gathered, process_count, process_number, summed
from .progress import Shown, progress
from .sampler import Sampler
from .sharding import is_sharded, unsharded, whole
from .stage import Stage

__all__ = ["Place", "Stepper", "run_steps"]

RandomState = tuple[Tensor, Tensor | None]

# Seconds between checkpoints, where a stage does not say after how many steps.
SAVED_AFTER = 300.0

ADVICE = "A smaller learning rate, a longer warmup or float32 may help."


@dataclass(slots=True)
class Place:
    """Where a run is.

    Attributes:
        stage: the number of the stage.
        done: steps of this stage that are done.
        step: steps of all stages that are.
        seconds: that the run has taken, those before an interruption among them.
        loss, targets, tokens: sums since the last line of metrics.
        since: `seconds` at the last line of metrics.
        all_tokens: of all steps.
        training_seconds: that steps alone have taken.
        metrics: bytes of `metrics.jsonl`.
    """

    stage: int = 0
    done: int = 0
    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    targets: float = 0.0
    tokens: float = 0.0
    since: float = 0.0
    all_tokens: float = 0.0
    training_seconds: float = 0.0
    metrics: int = 0

    @property
    def speed(self) -> float | None:
        """Tokens a second, of steps alone; None where there were none."""
        return self.all_tokens / max(self.training_seconds, 1e-9) if self.step else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Stepper:
    """One step after the other: gradients of a step's batches, their length, the optimiser.

    The loss of a step is the sum over all targets of all its batches in all processes, divided by
    their number.

    Args:
        accelerator: what moves and wraps the model.
        model: the learner as it is wrapped.
        learner: the learner itself.
    """

    def __init__(
        self, accelerator: Any, model: Any, learner: Learner, optimizer: AnyOptimizer, stage: Stage
    ) -> None:
        self.accelerator, self.model, self.learner = accelerator, model, learner
        self.optimizer, self.stage = optimizer, stage
        self.weights = [p for group in optimizer.param_groups for p in group["params"]]
        self.last: Batch | None = None

    def step(self, number: int, batches: list[Batch]) -> tuple[float, float, float]:
        """Makes step `number`, from 0, of the stage.

        Returns:
            The sum of the loss, and how many targets and real tokens there were, in all processes.
            A loss that is not finite has changed nothing.
        """
        device, objective = self.accelerator.device, self.learner.objective
        counts = [float(sum(objective.count(own) for own in batches))]
        counts.append(float(sum(int(own.real.sum()) for own in batches)))
        targets, tokens = summed(counts, device)
        share = process_count() / max(targets, 1.0)
        total: Tensor | None = None
        for place, given in enumerate(batches):
            batch, padded = on_device(given, device, self.learner.longest)
            last = place + 1 == len(batches)
            together: AbstractContextManager[Any] = (
                nullcontext() if last else alone(self.accelerator, self.model)
            )
            with together:
                loss = self.model(batch, padded)
                # Several processes take the mean of their gradients.
                self.accelerator.backward(loss * share)
            own = loss.detach()
            total = own if total is None else total + own
            self.last = batch
        assert total is not None
        norm = self._clipped()
        found, length = torch.stack([total.double(), norm.double()]).tolist()
        (found,) = summed([found], device)
        if found - found == 0.0 and length - length == 0.0:
            set_learning_rate(self.optimizer, learning_rate_share(self.stage, number))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            return found, targets, tokens
        return found if found - found != 0.0 else length - length, targets, tokens

    def _clipped(self) -> Tensor:
        """The length of the gradient, before it is made no longer than allowed."""
        grads = [p.grad for p in self.weights if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(grads))
        if self.stage.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.stage.clip, norm)
        return norm

    def blame(self, batches: list[Batch], state: RandomState) -> str:
        """Where a step that went wrong began; makes it again with the same draws."""

        with unsharded(self.learner) as learner:
            found = self._where(learner, batches, state)
        answers = gathered(found, self.accelerator.device)
        return next((own for own in answers if own != NOT_AGAIN), found)

    def blame_refused(self, batches: list[Batch], state: RandomState, error: ValueError) -> str:
        """The same for a step that was refused on the way to a loss: a reach is no NaN. Other
        processes may be elsewhere, and are not asked. An error of another kind is raised again.
        """
        if is_sharded(self.learner):
            raise error
        found = self._where(self.learner, batches, state, error)
        return f"{found} ({error})"

    def _where(
        self,
        learner: Learner,
        batches: list[Batch],
        state: RandomState,
        error: ValueError | None = None,
    ) -> str:
        def again() -> Tensor:
            host, own = state
            torch.set_rng_state(host)
            if own is not None:
                torch.cuda.set_rng_state(own, self.accelerator.device)
            losses = []
            for given in batches:
                batch, padded = on_device(given, self.accelerator.device, learner.longest)
                losses.append(learner(batch, padded))
            return torch.stack(losses)

        return where_it_began(learner, again, error)


def run_steps(
    stepper: Stepper,
    task: Task,
    seed: int,
    place: Place,
    *,
    record: Callable[[dict[str, Any]], None],
    evaluate: Callable[[Shown], None],
    save: Callable[[], None],
) -> None:
    """The steps of a stage that are not done yet, and its evaluations.

    Args:
        record: takes a line of metrics.
        evaluate: called when an evaluation is due, with what is told how far it is.
        save: called when a checkpoint is due, after what is due besides.
    """
    stage, device = stepper.stage, stepper.accelerator.device
    mine, processes = process_number(), process_count()
    sampler = Sampler(
        len(task.train),
        seed * 7919 + place.stage,
        lengths=task.lengths("train") if stage.by_length else None,
        size=stage.batch * stage.accumulate * processes,
    )
    stepper.model.train()
    begin, before = time.perf_counter(), place.seconds
    saved = begin
    with progress(stage.name, place.done, stage.steps, mine == 0) as shown:
        if stage.steps == 0:
            evaluate(shown)
            place.seconds = place.since = before + time.perf_counter() - begin
        while place.done < stage.steps:
            state = _random_state(device)
            start = time.perf_counter()
            lists = sampler.step(place.done, stage.batch, stage.accumulate, mine, processes)
            batches = [task.batch(numbers, "train") for numbers in lists]
            try:
                loss, targets, tokens = stepper.step(place.done, batches)
            except ValueError as error:
                layer = stepper.blame_refused(batches, state, error)
                raise NotFiniteError(place.step + 1, stage.name, layer, math.nan, ADVICE) from error
            place.done, place.step = place.done + 1, place.step + 1
            if loss - loss != 0.0:
                layer = stepper.blame(batches, state)
                raise NotFiniteError(place.step, stage.name, layer, loss, ADVICE)
            place.loss, place.targets = place.loss + loss, place.targets + targets
            place.tokens, place.all_tokens = place.tokens + tokens, place.all_tokens + tokens
            now = time.perf_counter()
            place.seconds = before + now - begin
            place.training_seconds += now - start
            shown.step(place.done, loss / max(targets, 1.0), tokens, now - start)
            last = place.done == stage.steps
            if last or place.done % stage.record_every == 0:
                record(_line(stepper, place, device))
            if last or _due(place.done, stage.evaluate_every):
                evaluate(shown)
                stepper.model.train()
                place.seconds = before + time.perf_counter() - begin
                place.since = place.seconds
            if last or _due(place.done, stage.save_every) or _long_ago(stage, place, saved, device):
                save()
                saved = time.perf_counter()


def _random_state(device: torch.device) -> RandomState:
    """Of torch's generators: dropout draws on the device."""
    own = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), own


def _long_ago(stage: Stage, place: Place, saved: float, device: torch.device) -> bool:
    """Whether a stage that nobody said it of has gone on for long without a checkpoint. Processes
    ask together, where a line of metrics is due: their clocks differ.
    """
    if stage.save_every is not None or place.done % stage.record_every:
        return False
    (late,) = summed([float(time.perf_counter() - saved > SAVED_AFTER)], device)
    return late > 0


def _due(done: int, every: int | None) -> bool:
    return every is not None and done % every == 0


def _line(stepper: Stepper, place: Place, device: torch.device) -> dict[str, Any]:
    """A line of metrics; sums begin anew."""
    stage = stepper.stage
    took = max(place.seconds - place.since, 1e-9)
    line: dict[str, Any] = {
        "step": place.step,
        "stage": stage.name,
        "kind": "train",
        "loss": place.loss / max(place.targets, 1.0),
        "learning_rate": stage.learning_rate * learning_rate_share(stage, place.done - 1),
        "tokens": place.all_tokens,
        "tokens_per_second": place.tokens / took,
        "peak_memory": peak_memory(device),
        "seconds": place.seconds,
    }
    if stepper.last is not None:
        source = None if stepper.last.source is None else stepper.last.source["real"]
        found = reaches(stepper.learner, stepper.last.real, source)
        line |= {} if found is None else {"reach": found}
    place.loss = place.targets = place.tokens = 0.0
    place.since = place.seconds
    return line
