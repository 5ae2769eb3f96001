"""What was trained, ready to be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..errors import need_text
from ..paths import expanded
from ..tasks import InputReader, Task, from_description
from ..tasks.inputs import READER
from ..tasks.registry import kind_of_task
from ..tasks.squad_reader import SquadReader
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


class Trained:
    """A model as a run left it.

    To read new input it needs no more than the run's folder. Its task, with the examples, is made
    of the data of the run when something asks for it.

    Attributes:
        model: the learner, in evaluation mode: `model.body` is of `longspan.models`.
        folder: of the run.
    """

    def __init__(
        self,
        model: Learner,
        folder: Path,
        *,
        data: str | Path | Sequence[str | Path] | None = None,
        task: Task | None = None,
    ) -> None:
        self.model, self.folder = model, folder
        self._data, self._own_task = data, task

    @property
    def objective(self) -> Objective:
        """How answers are read from the model."""
        return self.model.objective

    @cached_property
    def task(self) -> Task:
        """That of the last stage, with its examples; raises where their data is not found."""
        if self._own_task is not None:
            return self._own_task
        described = _found(self._described, self._config["described"].get("from"))
        if self._data is not None:
            described["data"] = self._data
        try:
            task = from_description(described)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"load: the data that {self.folder} was trained on is not where it was: {error}; "
                "say where it is with data=… (--data), or give the task"
            ) from error
        if self._chosen:
            task.take(self._chosen)
        return task

    @property
    def input_reader(self) -> InputReader:
        """How the model reads new input; raises where it predicts nothing of any."""
        if self._reader is None:
            raise ValueError(
                f"{self.folder} was trained for {self._task_name}, which predicts nothing of new "
                "input: it has no reader for it"
            )
        return self._reader

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
        reader = self._reader
        if not isinstance(reader, SquadReader):
            raise ValueError(
                f"{self.folder} was trained for {self._task_name}, and only squad answers questions"
            )
        for question, text in questions:
            for what, given in (("question", question), ("text", text)):
                need_text(f"answers: a {what}", given)
                if not given.strip():
                    raise ValueError(f"answers: a {what} is empty")
        return answers_of(self.model, reader, questions)

    def predict(self, records: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the model says to each record of new input: of squad the answer, of classify the
        class, of tag the words' tags, of translate and birthplaces what it writes. What a record
        must have is `input_reader.reads`.
        """
        reader = self.input_reader
        for record in records:
            reader.check(record)
        inputs = reader.inputs(records)
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

    @cached_property
    def _config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.folder / "config.json").read_text(encoding="utf-8")
        )
        return found

    @cached_property
    def _described(self) -> dict[str, Any]:
        """The task of the last finished stage."""
        names = [own["name"] for own in self._config["stages"]]
        found: dict[str, Any] = self._config["described"]["tasks"][
            names.index(last_stage(self.folder).name)
        ]
        return found

    @cached_property
    def _chosen(self) -> dict[str, float]:
        """What the run has chosen on held-out examples."""
        result = finished(self.folder)
        return {} if result is None else result.get("chosen") or {}

    @property
    def _task_name(self) -> str:
        own = self._own_task
        return str(self._described["name"] if own is None else own.name)

    @cached_property
    def _reader(self) -> InputReader | None:
        """The one in the run's folder, which is that of its last stage; otherwise the task's."""
        if self._own_task is not None:
            return self._own_task.input_reader
        kind, folder = kind_of_task(self._task_name).reader, self.folder / "task"
        if kind is None:
            return None
        last = self._config["described"]["tasks"][-1]
        if self._described != last or not (folder / READER).is_file():
            return self.task.input_reader
        found = kind.read(folder)
        return found.with_chosen(self._chosen) if self._chosen else found


def load(
    run: str | Path,
    *,
    data: str | Path | Sequence[str | Path] | None = None,
    task: Task | None = None,
    device: str | torch.device = "cpu",
) -> Trained:
    """What the last finished stage of a run has left, ready to be used.

        ls.load("runs/mine").answer("Who may end the contract?", text).text

    The run's folder is all that new input needs. What looks at examples (`outputs`, `reaches`,
    `task`) reads the data of the run, too.

    Args:
        run: the run's folder.
        data: the data that it was trained on, where that lies elsewhere now.
        task: the task, where it is not one that `longspan.tasks.make` knows.
        device: where the model is wanted.
    """
    folder = Path(run)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"load: {folder} has no config.json: is it the folder of a run?")
    model = load_learner(last_stage(folder)).to(device)
    return Trained(model, folder, data=data, task=task)


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
