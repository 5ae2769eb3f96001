"""New input for a trained model: what it reads of it, and what it says to each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..errors import describe
from ..writing import write_text
from .batch import Batch
from .reading import read_object

__all__ = ["READER", "InputReader", "Inputs", "need_texts"]

# The file of a reader, in the folder that `Task.save` is given.
READER = "reader.json"

# Of its form.
FORMAT = 1


class Inputs(NamedTuple):
    """Rows for a model, made of what someone gave.

    Attributes:
        rows: how many there are; a long text can have several.
        batch: rows of these numbers, side by side.
        predictions: what a model's outputs, by the rows' numbers, say to each that was given, in
            order, as JSON can hold it.
    """

    rows: int
    batch: Callable[[Sequence[int]], Batch]
    predictions: Callable[[Mapping[int, Any]], list[Any]]


@dataclass(frozen=True)
class InputReader(ABC):
    """What a trained model needs of its task to read new input: names of classes, lengths, marks;
    no example. A run keeps it in its folder, so that a model is used without its data.

    It is a dataclass, and JSON can hold its fields.

    Attributes:
        reads: the fields of a record that it takes.
        documents: those of them that may be long, and are not repeated beside a prediction.
    """

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]: ...

    @property
    def documents(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Records, each checked before, as a model reads them."""

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises unless a record is one that `inputs` takes."""
        need_texts(record, self.reads)

    def with_chosen(self, chosen: Mapping[str, float]) -> Self:
        """The same with what `Task.choose` gave."""
        raise NotImplementedError(f"{type(self).__name__} has nothing that is chosen")

    def settings(self) -> dict[str, Any]:
        """Its fields, as JSON can hold them."""
        return {own.name: getattr(self, own.name) for own in fields(self)}

    def save(self, folder: Path) -> Path:
        """Writes it as `read` reads it, to the side and renamed; gives the file's path."""
        path = folder / READER
        text = json.dumps({"format": FORMAT, **self.settings()}, indent=2, ensure_ascii=False)
        write_text(path, text + "\n")
        return path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The one that `save` wrote."""
        return cls(**cls.saved_settings(folder))

    @staticmethod
    def saved_settings(folder: Path) -> dict[str, Any]:
        """The fields that `save` wrote, by name."""
        path = folder / READER
        found = read_object(path)
        number = found.pop("format", None)
        if number != FORMAT:
            raise ValueError(f"{path} is of format {number!r}, this version reads {FORMAT}")
        return found


def need_texts(record: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises unless a record has a text in each of these fields."""
    for name in names:
        if name not in record:
            there = ", ".join(map(repr, record)) or "none"
            raise ValueError(f"no field {name!r}; there are {there}")
        if not isinstance(record[name], str):
            raise ValueError(f"{name!r} must be a text, got {describe(record[name])}")
