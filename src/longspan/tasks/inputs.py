"""New input for a trained model: what it reads of it, and what it says to each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
        """Raises unless a record is one that `inputs` takes: with a text in each field, which is
        not blank.
        """
        need_texts(record, self.reads)
        for name in self.reads:
            if not record[name].strip():
                raise ValueError(f"{name!r} is empty")

    def with_chosen(self, chosen: Mapping[str, float]) -> Self:
        """The same with what `Task.choose` gave, where it has fields of these names."""
        own = {name: value for name, value in chosen.items() if name in self.settings()}
        return replace(self, **own)

    def settings(self) -> dict[str, Any]:
        """Its fields, as JSON can hold them."""
        return {own.name: getattr(self, own.name) for own in fields(self)}

    def save(self, folder: Path) -> list[Path]:
        """Writes it as `read` reads it, to the side and renamed; gives the files' paths."""
        path = folder / READER
        content = {"format": FORMAT, "fields": self.settings()}
        write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return [path]

    @classmethod
    def read(cls, folder: Path, **more: Any) -> Self:
        """The one that `save` wrote; with fields that are not in its file."""
        path = folder / READER
        found = read_object(path)
        number = found.get("format")
        if number != FORMAT:
            raise ValueError(f"{path} is of format {number!r}, this version reads {FORMAT}")
        try:
            return cls(**found["fields"], **more)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not of {cls.__name__}: {error}") from error


def need_texts(record: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises unless a record has a text in each of these fields."""
    for name in names:
        if name not in record:
            there = ", ".join(map(repr, record)) or "none"
            raise ValueError(f"no field {name!r}; there are {there}")
        if not isinstance(record[name], str):
            raise ValueError(f"{name!r} must be a text, got {describe(record[name])}")
