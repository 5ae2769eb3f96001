"""What every task offers to training, evaluation and reports."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from .batch import Batch
from .inputs import InputReader
from .reading import SourceFile

__all__ = ["Examples", "Objective", "Task", "apart"]

SPLITS = ("train", "dev", "test", "held")

Objective = Literal["spans", "next", "masked", "classes", "tags", "translation"]

E = TypeVar("E")


class Examples(Sequence[E], Generic[E]):
    """So many examples, each made when it is asked for."""

    def __init__(self, count: int, make: Callable[[int], E]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> E: ...

    @overload
    def __getitem__(self, index: slice) -> list[E]: ...

    def __getitem__(self, index: int | slice) -> E | list[E]:
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"there are {self._count} examples, asked for number {index}")
        return self._make(index % self._count)


def apart(examples: Sequence[E], place: object) -> tuple[list[E], list[E]]:
    """All but one of every ten examples to learn from, and these (the last of fewer than ten) to be
    measured on, for data that does not say; `place` is where it lies, for the message. Which of ten
    is drawn, always the same, for in many files classes take turns.
    """
    if len(examples) < 2:
        raise ValueError(f"{place} has one example alone: name others to measure on with dev=…")
    drawn = random.Random("apart")
    chosen = {first + drawn.randrange(10) for first in range(0, len(examples) - 9, 10)}
    chosen = chosen or {len(examples) - 1}
    return (
        [own for number, own in enumerate(examples) if number not in chosen],
        [examples[number] for number in sorted(chosen)],
    )


class Task(ABC):
    """Examples from files, as batches; and how good a model's outputs are.

    Attributes:
        name: by which `make` finds it.
        objective: what a model is trained for, which decides its head and what `batch` asks.
        metric: the main one of those that `score` gives.
        also: those that tables show beside it.
        lower_is_better: whether a small value of it is good.
        vocabulary: how many tokens there are.
        pad: the token on the right of short rows.
        classes: of a classifier or a tagger.
        length: the most tokens of an example.
        train: examples to learn from.
        dev: examples to be measured on.
        held: examples of which neither is true: on them, what no gradient teaches is chosen before
            a model is measured; None where there is nothing to choose.
        settings: what the task was made with, as JSON can hold it.
        files: what was read.
        data: where the data lies, as it was given; None for what ships or is generated.
        called: how `make` was asked for it, where that is not its name.
        end: the token that ends what a model writes, where it writes.
        reader: the class of `input_reader`; None for a task that predicts nothing of new input.
        paths: settings that are paths.
        most_global: how many global tokens an example has at most; None where nobody knows. A GPU
            that is told need not be asked.
    """

    name: ClassVar[str]
    reader: ClassVar[type[InputReader] | None] = None
    paths: ClassVar[tuple[str, ...]] = ("cache", "dev", "tokenizer")
    objective: Objective
    metric: str
    also: tuple[str, ...] = ()
    lower_is_better: bool = False
    vocabulary: int
    pad: int = 0
    classes: int | None = None
    length: int
    train: Sequence[Any]
    dev: Sequence[Any]
    held: Sequence[Any] | None = None
    settings: dict[str, Any]
    files: list[SourceFile]
    data: str | list[str] | None
    called: str | None = None
    end: int | None = None
    most_global: int | None = None

    @abstractmethod
    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Examples of these numbers, side by side."""

    def lengths(self, split: str = "train") -> Sequence[int] | None:
        """How many tokens the examples have; None where that is not known beforehand, or all have
        as many.
        """
        return None

    @abstractmethod
    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """The metrics of what a model gave for the examples of these numbers.

        What an output is follows from the objective. `"next"`: the sum of −log₂ p over the
        example's targets, their number, and how many of them were the model's first choice.
        `"masked"`: how many were, their number, and the sum of −ln p. `"spans"`: a list of
        `(first token, last token, score)`, best first, in which `(0, 0, score)` says that there
        is no answer. `"classes"`: the class. `"tags"`: one tag a token, as many as the example's
        tokens. `"translation"`: tokens, without those that begin and end a text.
        """

    def choose(self, outputs: Mapping[int, Any]) -> dict[str, float]:
        """By name, what is best for a model that gave these outputs for the `held` examples."""
        raise NotImplementedError(f"{self.name} has nothing to choose")

    def take(self, chosen: Mapping[str, float]) -> None:
        """What `choose` gave is in force from now on."""
        raise NotImplementedError(f"{self.name} has nothing to choose")

    @abstractmethod
    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """The same outputs to be read by people, as JSON can hold them."""

    def prediction_file(self, outputs: Mapping[int, Any], split: str = "dev") -> Any:
        """What `predictions.json` holds; a task with a published form gives that one."""
        return self.predictions(outputs, split)

    @property
    def input_reader(self) -> InputReader | None:
        """How a model of this task reads new input; None where it predicts nothing of it."""
        return None

    def summary(self) -> list[str]:
        """What `longspan data` says of the examples beside their numbers, a line each."""
        return []

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """How each token reads."""
        return [str(token) for token in tokens]

    def save(self, folder: Path) -> list[Path]:
        """Writes what a trained model needs to read new input, such as a tokenizer, and says which
        files these are: none, for a task that predicts nothing of it.
        """
        reader = self.input_reader
        return [] if reader is None else reader.save(folder)

    def check_reader(self) -> None:
        """Raises unless what `save` writes is what is read again."""
        own, kind = self.input_reader, self.reader
        if own is not None and type(own) is not kind:
            named = "None" if kind is None else kind.__name__
            raise TypeError(
                f"{type(self).__name__}.reader must be {type(own).__name__}, the class of its "
                f"input_reader, got {named}"
            )

    def examples(self, split: str) -> Sequence[Any]:
        """The examples of a split by its name."""
        found = getattr(self, split, None) if split in SPLITS else None
        if found is None:
            there = [s for s in SPLITS if getattr(self, s, None) is not None]
            raise ValueError(f"{self.name} has no split {split!r}: choose {' or '.join(there)}")
        return found

    def need_vocabulary(self, size: int, owner: str) -> None:
        """Raises unless a model that knows so many tokens knows all of the task's."""
        if self.vocabulary > size:
            raise ValueError(
                f"{self.name}: its tokens are numbered up to {self.vocabulary - 1}, but {owner} "
                f"knows {size}: name the tokenizer of {owner} with tokenizer=…"
            )

    def describe(self) -> dict[str, Any]:
        """Name, data, settings and files, from which `from_description` makes the task again."""
        return {
            "name": self.called or self.name,
            "data": self.data,
            "settings": self.settings,
            "files": [file._asdict() for file in self.files],
        }

    @classmethod
    def measured_on(
        cls, description: Mapping[str, Any], dev: str | Path, saved: Path
    ) -> dict[str, Any]:
        """The description of a task that is measured on another file, or folder.

        Args:
            saved: the folder that `save` wrote to.
        """
        if "dev" not in description["settings"]:
            raise ValueError(f"{cls.name} has no dev=…: it is measured on its own data")
        settings = {**description["settings"], "dev": str(dev)}
        # What lay in the other file is not asked for any more.
        return {**description, "settings": settings, "files": []}

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], *, cache: str | Path | None = None
    ) -> Self:
        """The task as it was described; raises when a file is no longer what it was."""
        make: Callable[..., Self] = cls
        task = make(description["data"], cache=cache, **description["settings"])
        before = [file["sha256"] for file in description.get("files", [])]
        now = [file.sha256 for file in task.files]
        if before and before != now:
            changed = [f.path for f in task.files if f.sha256 not in before]
            raise ValueError(
                f"{cls.name}: the data changed since this was described: "
                f"{', '.join(changed) or 'there are fewer files'}; put it back, or start anew"
            )
        return task
