"""What was trained, ready to be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import need_text
from ..paths import expanded
from ..tasks import Task, from_description
from ..tasks.squad import Squad
from ..tasks.task import PATHS
from .answering import Answer, answers_of
from .evaluating import outputs_of
from .folder import finished
from .learner import Learner
from .objectives import Objective
from .predicting import outputs_to
from .reach_study import study_reach
from .run import last_stage
from .saving import load_learner

__all__ = ["Trained", "load"]


@dataclass(frozen=True, slots=True)
class Trained:
    """A model as a run left it, with the task that it was trained for.

    Attributes:
        model: the learner, in evaluation mode: `model.body` is of `longspan.models`.
        task: that of the last stage.
        objective: how answers are read from the model.
        folder: of the run.
    """

    model: Learner
    task: Task
    objective: Objective
    folder: Path

    def outputs(
        self, numbers: list[int] | None = None, *, split: str = "dev", batch: int = 8
    ) -> dict[int, Any]:
        """What the model answers to the task's examples of these numbers, or to all."""
        chosen = list(range(len(self.task.examples(split)))) if numbers is None else numbers
        device = next(self.model.parameters()).device
        found, *_ = outputs_of(
            self.model, self.task, chosen, batch=batch, split=split, device=device
        )
        return found

    def answer(self, question: str, text: str) -> Answer:
        """The answer to a question about a text of any length: what it is, its first and last
        character, its score, and, asked with `looked()`, what the model looked at.
        """
        return self.answers([(question, text)])[0]

    def answers(self, questions: Sequence[tuple[str, str]]) -> list[Answer]:
        """Answers to many questions, each with the text to look in."""
        task = self.task
        if not isinstance(task, Squad):
            raise ValueError(
                f"{self.folder} was trained for {task.name}, and only squad answers questions"
            )
        for question, text in questions:
            for what, given in (("question", question), ("text", text)):
                need_text(f"answers: a {what}", given)
                if not given.strip():
                    raise ValueError(f"answers: a {what} is empty")
        return answers_of(self.model, task, questions)

    def predict(self, records: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the model says to each record of new input: of squad the answer, of classify the
        class, of tag the words' tags, of translate and birthplaces what it writes. What a record
        must have is `task.reads`.
        """
        for record in records:
            self.task.check_input(record)
        inputs = self.task.inputs(records)
        return inputs.predictions(outputs_to(self.model, inputs))

    def reaches(
        self,
        examples: int = 512,
        *,
        batch: int = 16,
        told: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """What learned windows have learned, on so many dev examples, spread evenly: how far tokens
        look, by layer and head, by what they are and where they stand, and how much of the
        differences each of these explains. As JSON can hold it; `docs/using.md` says what is what.
        """
        return study_reach(self.model, self.task, examples=examples, batch=batch, told=told)


def load(
    run: str | Path,
    *,
    data: str | Path | Sequence[str | Path] | None = None,
    task: Task | None = None,
    device: str | torch.device = "cpu",
) -> Trained:
    """What the last finished stage of a run has left, ready to be used.

        ls.load("runs/mine").answer("Who may end the contract?", text).text

    Args:
        run: the run's folder.
        data: the data that it was trained on, where that lies elsewhere now.
        task: the task, where it is not one that `longspan.tasks.make` knows.
        device: where the model is wanted.
    """
    folder = Path(run)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"load: {folder} has no config.json: is it the folder of a run?")
    path = last_stage(folder)
    model = load_learner(path).to(device)
    if task is None:
        task = _described_task(folder, path.name, data)
    return Trained(model, task, model.objective, folder)


def _described_task(
    folder: Path, stage: str, data: str | Path | Sequence[str | Path] | None
) -> Task:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    number = [own["name"] for own in config["stages"]].index(stage)
    described = _found(config["described"]["tasks"][number], config["described"].get("from"))
    if data is not None:
        described["data"] = data
    try:
        task = from_description(described)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"load: the data that {folder} was trained on is not where it was: {error}; say where "
            "it is with data=… (--data), or give the task"
        ) from error
    result = finished(folder)
    if result is not None and result.get("chosen"):
        task.take(result["chosen"])
    return task


def _found(description: dict[str, Any], base: str | None) -> dict[str, Any]:
    """A task's description with paths that lead to what they led to when the run was made in the
    folder `base`, wherever this is called from.
    """

    def there(path: Any) -> Any:
        if isinstance(path, list):
            return [there(own) for own in path]
        if not isinstance(path, str) or base is None or expanded(path).exists():
            return path
        from_base = Path(base) / path
        return str(from_base) if from_base.exists() else path

    settings = description["settings"]
    paths = {name: there(settings[name]) for name in PATHS if name in settings}
    return {**description, "data": there(description["data"]), "settings": {**settings, **paths}}
