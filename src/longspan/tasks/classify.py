"""One class for a text, or for two."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import need_int, need_text
from .batch import NOT_COUNTED, Batch, padded, real_of
from .classify_files import Fields, Labelled, read_labelled
from .cutting import say_cut
from .inputs import Inputs
from .reading import path_of
from .task import Examples, apart
from .text_task import TextReader, TextTask
from .tokenizing import (
    Cache,
    special_token,
    token_rows,
    token_rows_now,
    tokenizer_of,
)

__all__ = ["Classify", "ClassifyReader", "shortened"]


# `longspan data` tells the numbers of so many.
MOST_CLASSES = 12


class Row(NamedTuple):
    """An example's tokens, the kinds of these, and its class."""

    tokens: Tensor
    types: Tensor
    label: int


@dataclass(frozen=True)
class ClassifyReader(TextReader):
    """Rows of one text or of two, whose classes have names.

    Attributes:
        fields: those of the texts.
        labels: the classes' names, in the order of their numbers.
        length: the most tokens of a row.
    """

    fields: Sequence[str]
    labels: Sequence[str]
    length: int

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.fields)

    @property
    def documents(self) -> tuple[str, ...]:
        return self.reads

    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Texts without a class; each gets the name of one."""
        sides = [
            token_rows_now(self.tokenizer, [own[name] for own in records]) for name in self.fields
        ]
        self.note_cut([sum(map(len, parts)) for parts in zip(*sides, strict=True)])

        def batch(numbers: Sequence[int]) -> Batch:
            rows = [self.row([side[n] for side in sides], NOT_COUNTED) for n in numbers]
            return self.collated(rows, numbers)

        def predictions(outputs: Mapping[int, Any]) -> list[str]:
            return [self.labels[int(outputs[number])] for number in range(len(records))]

        return Inputs(len(records), batch, predictions)

    @cached_property
    def _marks(self) -> tuple[Tensor, Tensor, int]:
        """The first token, the one between, and the one that fills short rows."""
        first, between, pad = (
            special_token(self.tokenizer, what) for what in ("first", "between", "pad")
        )
        return torch.tensor([first]), torch.tensor([between]), pad

    def row(self, texts: Sequence[Tensor], label: int) -> Row:
        """An example of these texts' tokens."""
        first, between, _ = self._marks
        parts = shortened([text.long() for text in texts], self.length - 1 - len(texts))
        pieces = [torch.cat((part, between)) for part in parts]
        pieces[0] = torch.cat((first, pieces[0]))
        types = [torch.full((len(piece),), kind) for kind, piece in enumerate(pieces)]
        return Row(torch.cat(pieces), torch.cat(types), label)

    def note_cut(self, lengths: Sequence[int]) -> None:
        """Warns of examples of so many tokens that are cut."""
        room = self.length - 1 - len(self.fields)
        say_cut("classify", "texts", lengths, room, f"length={self.length}")

    def collated(self, rows: Sequence[Row], numbers: Sequence[int]) -> Batch:
        """Examples side by side, the first token of each global."""
        tokens = [row.tokens for row in rows]
        real = real_of(tokens)
        seen = torch.zeros_like(real)
        seen[:, 0] = True
        return Batch(
            tokens=padded(tokens, self._marks[2]),
            real=real,
            types=padded([row.types for row in rows], 0),
            global_tokens=seen,
            targets={"classes": torch.tensor([row.label for row in rows])},
            numbers=list(numbers),
        )


class Classify(TextTask):
    """Say of which class a text is, or how two texts are to one another.

    A row is `[CLS] text [SEP]`, or `[CLS] text [SEP] second [SEP]`; its first token is global and
    the class is read from it. What is too long is cut at its end, the longer text first. The
    measure is accuracy in percent; beside it, F1 as a mean over classes.

    Args:
        data: TSV, CSV or JSONL whose fields have names, or a folder with a file for training
            (`train…`) and one to be measured on (`dev…`, `val…`, `test…`); or a folder with a
            folder of texts for each class, or with such folders under `train` and `dev` or `test`;
            or a folder with Hyperpartisan's `articles….xml` and `ground-truth….xml`. Files are
            plain, .gz or .xz.
        dev: what to be measured on; without any, one of every ten examples of `data`.
        text: the field of the text.
        second: the field of a second text, if there is one.
        label: the field of the class.
        length: the most tokens of a row.
        tokenizer: a `tokenizer.json` or a folder that has one; None to learn one.
        vocabulary: the most tokens of one that is learned.
        cache: the folder for tokens; `~/.cache/longspan` by default.

    Attributes:
        labels: the classes' names, in the order of their numbers.
    """

    name = "classify"
    reader = ClassifyReader
    objective = "classes"
    metric = "accuracy"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        dev: str | Path | None = None,
        text: str = "text",
        second: str | None = None,
        label: str = "label",
        length: int = 512,
        tokenizer: str | Path | None = None,
        vocabulary: int = 8000,
        cache: Cache = None,
    ) -> None:
        if data is None:
            raise ValueError("classify: name the data, a file or folder of texts with labels")
        need_int("classify: length", length, at_least=8)
        for name, field in (("text", text), ("second", second), ("label", label)):
            if name != "second" or field is not None:
                need_text(f"classify: {name}", field)
        self.data = str(data)
        self.length = length
        self.settings = {
            "dev": None if dev is None else str(dev),
            "text": text,
            "second": second,
            "label": label,
            "length": length,
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "vocabulary": vocabulary,
        }
        other = None if dev is None else path_of("classify: dev", dev)
        read = read_labelled(path_of("classify: data", data), other, Fields(text, second, label))
        self.files = read.files
        learn, measure = read.train, read.dev
        if measure is None:
            learn, measure = apart(learn, data)
        self.labels = sorted({own.label for own in (*learn, *measure)})
        if len(self.labels) < 2:
            raise ValueError(
                f"{data}: {len(self.labels)} class in {len(learn) + len(measure)} examples; "
                "at least two classes are needed"
            )
        self.classes = len(self.labels)
        texts = [part for own in learn for part in (own.text, own.second) if part is not None]
        self._use(tokenizer_of(tokenizer, texts, vocabulary, cache=cache))
        names = [text] if second is None else [text, second]
        self._reader = ClassifyReader(self.tokenizer, names, self.labels, length)
        self._labelled = {"train": learn, "dev": measure}
        self.train = self._rows(learn, cache)
        self.dev = self._rows(measure, cache)
        new = sorted({own.label for own in measure} - {own.label for own in learn})
        if new:
            warnings.warn(
                f"classify: nothing to learn from is of class {new[0]!r}, which is measured",
                stacklevel=2,
            )

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Texts of these numbers."""
        examples = self.examples(split)
        return self._reader.collated([examples[number] for number in numbers], numbers)

    @property
    def input_reader(self) -> ClassifyReader:
        return self._reader

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """Accuracy, and the mean over classes of their F1, both in percent."""
        examples = self.examples(split)
        pairs = [(examples[number].label, int(given)) for number, given in outputs.items()]
        right = sum(wanted == given for wanted, given in pairs)
        parts = []
        for label in range(len(self.labels)):
            both = sum(wanted == given == label for wanted, given in pairs)
            any_of = sum((wanted == label) + (given == label) for wanted, given in pairs)
            if any_of:
                parts.append(2 * both / any_of)
        return {
            "accuracy": 100 * right / len(pairs),
            "macro_f1": 100 * sum(parts) / len(parts),
        }

    def summary(self) -> list[str]:
        """How many examples each class has."""
        found = []
        for split in ("train", "dev"):
            counts = Counter(own.label for own in self._labelled[split])
            several = [f"{label!r} {counts[label]:,}" for label in self.labels[:MOST_CLASSES]]
            more = ", …" if len(self.labels) > MOST_CLASSES else ""
            found.append(f"{split}: {', '.join(several)}{more}")
        return found

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each text the class that was given, and its own."""
        examples = self.examples(split)
        return [
            {
                "number": number,
                "label": self.labels[int(given)],
                "right": self.labels[examples[number].label],
            }
            for number, given in sorted(outputs.items())
        ]

    def _rows(self, found: list[Labelled], cache: Cache) -> Examples[Row]:
        first = token_rows(self.tokenizer, [own.text for own in found], "tokenising", cache=cache)
        second = None
        if self.settings["second"] is not None:
            texts = [own.second or "" for own in found]
            second = token_rows(self.tokenizer, texts, "tokenising", cache=cache)
        counts = first.lengths() if second is None else first.lengths() + second.lengths()
        self._reader.note_cut(counts.tolist())
        numbers = {label: number for number, label in enumerate(self.labels)}
        labels = [numbers[own.label] for own in found]

        def row(number: int) -> Row:
            parts = [first[number]] if second is None else [first[number], second[number]]
            return self._reader.row(parts, labels[number])

        return Examples(len(found), row)


def shortened(parts: list[Tensor], room: int) -> list[Tensor]:
    """One or two texts cut at their ends to so many tokens in all; the longer one is cut first."""
    if len(parts) == 1:
        return [parts[0][:room]]
    a, b = (len(part) for part in parts)
    if a + b > room:
        half = room // 2
        a, b = (a, room - a) if a <= half else (room - b, b) if b <= half else (room - half, half)
    return [parts[0][:a], parts[1][:b]]
