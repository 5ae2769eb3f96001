"""What was trained, ready to be used."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..errors import describe, need_text
from ..paths import expanded
from ..tasks import InputReader, Task, from_description
from ..tasks.inputs import READER
from ..tasks.registry import kind_of_task, paths_of
from ..tasks.squad_reader import SquadReader
from .answering import Answer, answers_of
from .evaluating import outputs_of
from .folder import finished, last_stage
from .learner import Learner
from .objectives import Objective
from .predicting import outputs_to
from .reach_study import study_reach
from .saving import load_learner

__all__ = ["Trained", "load"]


class _Source(NamedTuple):
    """Where a trained model is from, as it was when that was looked at: a run may go on.

    Attributes:
        folder: of the run.
        stage: the folder of the model.
        described: the stage's task, with paths that lead to where they led when the run was made.
        chosen: what the run has chosen on held-out examples.
    """

    folder: Path
    stage: Path
    described: dict[str, Any]
    chosen: dict[str, float]


class Trained:
    """A model as a run left it.

    To read new input it needs no more than the run's folder. Its task, with the examples, is made
    of the data of the run when something asks for it.

    Attributes:
        model: the learner, in evaluation mode: `model.body` is of `longspan.models`.
    """

    def __init__(self, model: Learner, source: _Source, task: Task | None = None) -> None:
        self.model = model
        self._source, self._own_task = source, task

    def __repr__(self) -> str:
        device = next(self.model.parameters()).device
        name = self._source.described["name"]
        return f"Trained({str(self.folder)!r}, task={name!r}, device={str(device)!r})"

    @property
    def folder(self) -> Path:
        """That of the run."""
        return self._source.folder

    @property
    def objective(self) -> Objective:
        """How answers are read from the model."""
        return self.model.objective

    @cached_property
    def task(self) -> Task:
        """What it was trained for, with the examples; raises where their data is not found."""
        return self._made(self._source.described) if self._own_task is None else self._own_task

    def _made(self, described: dict[str, Any]) -> Task:
        kind_of_task(described["name"])  # Its code may be missing, too.
        try:
            task = from_description(described)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"load: the data that {self.folder} was trained on is not where it was: {error}; "
                "say where it is with data=… (--data), or give the task"
            ) from error
        if self._source.chosen:
            task.take(self._source.chosen)
        return task

    @property
    def input_reader(self) -> InputReader:
        """How the model reads new input; raises where it predicts nothing of any."""
        if self._reader is None:
            raise ValueError(
                f"{self.folder} was trained for {self._source.described['name']}, which predicts "
                f"nothing of new input: there is no {READER} beside its model"
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

    def evaluate(
        self,
        dev: str | Path | None = None,
        *,
        batch: int = 8,
        told: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """How good the model is, on the task's dev examples or on those of a file: `metrics` by
        name, the `loss`, how many `examples`, and `predictions` to be read.

        What the run has chosen stays. The training data is read, too, for what follows from it.

        Args:
            dev: what to be measured on, in the form of the task's data.
            batch: examples at once.
            told: how many of how many examples are done.
        """
        task = self.task if dev is None else self._measured_on(dev)
        device = next(self.model.parameters()).device
        numbers = list(range(len(task.dev)))
        outputs, loss, targets, _ = outputs_of(
            self.model, task, numbers, batch=batch, device=device, told=told
        )
        return {
            "metrics": task.score(outputs, "dev"),
            "loss": loss / max(targets, 1),
            "examples": len(outputs),
            "predictions": task.predictions(outputs, "dev"),
        }

    def _measured_on(self, dev: str | Path) -> Task:
        described = self._source.described
        if not expanded(dev).exists() and not _is_there(expanded(dev)):
            raise FileNotFoundError(f"evaluate: dev: there is no file {dev}")
        task = self._made(
            kind_of_task(described["name"]).measured_on(described, dev, self._source.stage)
        )
        own, reader = task.input_reader, self._reader
        if own is not None and reader is not None and own.settings() != reader.settings():
            other = [name for name, was in reader.settings().items() if own.settings()[name] != was]
            raise ValueError(
                f"evaluate: with {dev}, {task.name} has other {' and '.join(other)} than the model "
                "has learned"
            )
        return task

    def answer(self, question: str, text: str) -> Answer:
        """The answer to a question about a text of any length: what it is, its first and last
        character, its score, and, asked with `looked()`, what the model looked at.
        """
        return self.answers([(question, text)])[0]

    def answers(self, questions: Sequence[tuple[str, str]]) -> list[Answer]:
        """Answers to many questions, each with the text to look in."""
        reader = self.input_reader
        if not isinstance(reader, SquadReader):
            raise ValueError(
                f"{self.folder} was trained for {self._source.described['name']}, and only squad "
                "answers questions"
            )
        for asked in questions:
            if not isinstance(asked, tuple | list) or len(asked) != 2:
                raise TypeError(
                    f"answers: each must be a question and a text, got {describe(asked)}"
                )
            question, text = asked
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
        like = f"[{{{', '.join(f'{name!r}: …' for name in reader.reads)}}}]"
        if isinstance(records, str | Mapping):
            raise TypeError(f"predict takes a list of records, {like}, got {describe(records)}")
        for record in records:
            if not isinstance(record, Mapping):
                raise TypeError(f"predict: records must be as in {like}, got {describe(record)}")
            reader.check(record)
        inputs = reader.inputs(records)
        return inputs.predictions(outputs_to(self.model, inputs.rows, inputs.batch))

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
    def _reader(self) -> InputReader | None:
        if self._own_task is not None:
            return self._own_task.input_reader
        _, stage, described, chosen = self._source
        kind = kind_of_task(described["name"]).reader
        if kind is None or not (stage / READER).is_file():
            return None
        return kind.read(stage).with_chosen(chosen)


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
        task: the task, where it is not one that `longspan.tasks.make` knows; what the run has
            chosen is in force in it from now on.
        device: where the model is wanted.
    """
    folder = Path(run).resolve()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"load: {run} has no config.json: is it the folder of a run?")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stage, result = last_stage(folder), finished(folder)
    number = [own["name"] for own in config["stages"]].index(stage.name)
    described = _found(config["described"]["tasks"][number], config["described"].get("from"))
    if data is not None:
        described["data"] = data
    named = described["settings"].get("tokenizer")
    if named is not None and not _is_there(expanded(named)):
        # The same tokens lie beside the model.
        described["settings"]["tokenizer"] = str(stage)
        described.pop("tokenizer", None)
    chosen = {} if result is None else result.get("chosen") or {}
    model = load_learner(stage).to(device)
    if task is not None:
        _check_own(task, model, described)
        if chosen:
            task.take(chosen)
    return Trained(model, _Source(folder, stage, described, chosen), task)


def _check_own(task: Task, model: Learner, described: Mapping[str, Any]) -> None:
    """Raises unless a task is of the kind that a model was trained for, with the same tokens."""
    if task.objective != model.objective.name:
        raise ValueError(
            f"load: task is for {task.objective!r}, and the model was trained for "
            f"{model.objective.name!r}"
        )
    classes = model.objective.settings.get("classes")
    if classes is not None and task.classes != classes:
        raise ValueError(f"load: task has {task.classes} classes, and the model {classes}")
    tokens = task.describe().get("tokens")
    if tokens is not None and described.get("tokens", tokens) != tokens:
        raise ValueError(
            "load: task has other tokens than the model was trained with: give it the tokenizer of "
            "the run with tokenizer=…, which lies beside the model"
        )


def _found(description: dict[str, Any], base: str | None) -> dict[str, Any]:
    """A task's description with paths that lead to what they led to when the run was made in the
    folder `base`, wherever this is called from.
    """

    def there(path: Any) -> Any:
        if isinstance(path, list):
            return [there(own) for own in path]
        if not isinstance(path, str) or base is None or _is_there(expanded(path)):
            return path
        from_base = Path(base) / path
        return str(from_base) if _is_there(from_base) else path

    name, settings = description["name"], description["settings"]
    place, _, kind = name.rpartition(":")
    if place.endswith(".py"):
        name = f"{there(place)}:{kind}"
    paths = {key: there(settings[key]) for key in paths_of(name) if key in settings}
    moved = {"name": name, "data": there(description["data"]), "settings": {**settings, **paths}}
    return {**description, **moved}


def _is_there(path: Path) -> bool:
    """Whether this is a file or folder, or with what the names of some begin, and then a dot."""
    if path.exists():
        return True
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    return any(own.name.startswith(f"{path.name}.") for own in beside)
