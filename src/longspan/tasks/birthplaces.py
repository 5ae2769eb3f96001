"""Where was someone born? What a text on people taught a model, asked of it in questions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import describe, need_int
from .batch import NOT_COUNTED, Batch
from .inputs import InputReader, Inputs
from .reading import kind_of, path_of, read_lines, source_of, splits_of
from .task import Examples, Task, apart
from .tokenizing import Cache

__all__ = ["Birthplaces", "BirthplacesReader", "Pair", "corrupted"]

# Stands for what was taken out of a text, and before and after an answer.
MASK = "⁇"
# On the right of short rows. The first of all characters, so its number is 0.
PAD = "□"


class Pair(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class BirthplacesReader(InputReader):
    """Rows of characters that begin with a question.

    Attributes:
        characters: all there are, in the order of their numbers.
        length: the most characters of a question and its answer.
    """

    characters: str
    length: int

    reads = ("question",)

    def row(self, text: str) -> Tensor:
        """The numbers of a text's characters."""
        return torch.tensor([self._numbers[character] for character in text])

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """The characters of these numbers."""
        return [self.characters[token] for token in tokens]

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises unless `question` is a text of characters that the model knows, and leaves room
        for an answer.
        """
        super().check(record)
        question = record["question"].strip()
        new = sorted(set(question) - set(self.characters))
        if new:
            raise ValueError(f"'question' has {new[0]!r}, which no text to learn from has")
        if len(question) + 2 > self.length:
            raise ValueError(
                f"'question' must have at most {self.length - 2} characters, got {len(question)}"
            )

    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Questions, to each of which an answer is written."""
        rows = [self.row(f"{own['question'].strip()}{MASK}") for own in records]

        def batch(numbers: Sequence[int]) -> Batch:
            chosen = [rows[number] for number in numbers]
            nothing = [torch.full_like(row, NOT_COUNTED) for row in chosen]
            return Batch.of(chosen, {"tokens": nothing}, pad=self._numbers[PAD], numbers=numbers)

        def predictions(outputs: Mapping[int, Any]) -> list[str]:
            return ["".join(self.texts(outputs[number])) for number in range(len(records))]

        return Inputs(len(records), batch, predictions)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters)}


class Birthplaces(Task):
    """Answer questions from what was read before, character by character.

    In `part="finetune"` an example is `question ⁇ answer ⁇`, and the answer with the mark after it
    is asked. It is right when all of these are the model's first choice, which is what writing
    greedily would give. Measures are exact match in percent, and beside it that of always naming
    the place that is most frequent in training.

    In `part="pretrain"` an example is a line of a text from which a span was taken out and put at
    the end: `prefix ⁇ suffix ⁇ span ⁇`. A line is first cut to a random number of characters from
    4 to 7/8 of `length`; the span has a quarter of them on average. All characters are asked, and
    the measure is bits a character. A line is corrupted anew for each of `draws`.

    Both parts have the same characters, so that a model trained in one goes on in the other.

    Args:
        data: a folder with questions for training (`…train….tsv`) and to be measured on
            (`…dev….tsv`), each line a question, a TAB and its answer, and with the text to
            pretrain on (the first .txt); or one file of questions. Plain, .gz or .xz.
        part: `"pretrain"` or `"finetune"`.
        dev: the questions to be measured on; without any, one of every ten of the others.
        text: the text to pretrain on, if it is not in the folder.
        length: the most characters of an example.
        draws: how often each line is corrupted to learn from.
        seed: decides what is taken out.
        cache: not used; every task takes one.

    Attributes:
        characters: all there are, in the order of their numbers.
    """

    name = "birthplaces"
    reader = BirthplacesReader
    paths = (*Task.paths, "text")
    objective = "next"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        part: Literal["pretrain", "finetune"] = "finetune",
        dev: str | Path | None = None,
        text: str | Path | None = None,
        length: int = 128,
        draws: int = 100,
        seed: int = 0,
        cache: Cache = None,
    ) -> None:
        if data is None:
            raise ValueError("birthplaces: name the data, a file or folder of questions")
        if part not in ("pretrain", "finetune"):
            raise ValueError(
                f"birthplaces: part must be 'pretrain' or 'finetune', got {describe(part)}"
            )
        need_int("birthplaces: length", length, at_least=16)
        need_int("birthplaces: draws", draws, at_least=1)
        need_int("birthplaces: seed", seed)
        self.data = str(data)
        self.length = length
        self.seed = seed
        self.part = part
        self.settings = {
            "part": part,
            "dev": None if dev is None else str(dev),
            "text": None if text is None else str(text),
            "length": length,
            "draws": draws,
            "seed": seed,
        }
        self.metric = "exact_match" if part == "finetune" else "bits"
        self.lower_is_better = part == "pretrain"
        folder = path_of("birthplaces: data", data)
        other = None if dev is None else path_of("birthplaces: dev", dev)
        paths = splits_of(folder, other, (".tsv",))
        story = path_of("birthplaces: text", text) if text is not None else _story(folder)
        self.files = [source_of(path) for path in (*paths, story) if path is not None]
        learn = _pairs(paths.train)
        if paths.dev is None:
            learn, measure = apart(learn, paths.train)
        else:
            measure = _pairs(paths.dev)
        self._lines = [] if story is None else [line for line in read_lines(story) if line.strip()]
        if part == "pretrain" and not self._lines:
            where = f"{story} has no lines" if story else f"{data} has no .txt file"
            raise ValueError(f"birthplaces: {where}: name the text to pretrain on with text=…")
        self.pairs = {"train": learn, "dev": measure}
        self.characters = _characters([*learn, *measure], self._lines)
        self.vocabulary = len(self.characters)
        self._reader = BirthplacesReader(self.characters, length)
        self.end = self.characters.index(MASK)
        if part == "finetune":
            self._need_room()
            self.train = Examples(len(learn), learn.__getitem__)
            self.dev = Examples(len(measure), measure.__getitem__)
        else:
            count = len(self._lines)
            self.train = Examples(draws * count, lambda n: self._corrupted("train", n))
            self.dev = Examples(count, lambda n: self._corrupted("dev", n))

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Examples of these numbers."""
        examples = self.examples(split)
        rows, targets = [], []
        for number in numbers:
            example = examples[number]
            if isinstance(example, Pair):
                prompt = f"{example.question}{MASK}"
                row = self._reader.row(f"{prompt}{example.answer}{MASK}")
                target = row[1:].clone()
                target[: len(prompt) - 1] = NOT_COUNTED
            else:
                row = self._reader.row(example)
                target = row[1:].clone()
            rows.append(row[:-1])
            targets.append(target)
        return Batch.of(rows, {"tokens": targets}, pad=self.pad, numbers=numbers)

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """Exact match beside that of the most frequent place, in percent; bits a character."""
        examples = self.examples(split)
        count = sum(count for _, count, _ in outputs.values())
        bits = sum(bits for bits, _, _ in outputs.values()) / count
        if self.part == "pretrain":
            right = sum(right for _, _, right in outputs.values())
            return {"bits": bits, "accuracy": 100 * right / count}
        place = self.most_frequent()
        exact = sum(right == asked for _, asked, right in outputs.values())
        usual = sum(examples[number].answer == place for number in outputs)
        return {
            "exact_match": 100 * exact / len(outputs),
            "most_frequent": 100 * usual / len(outputs),
            "bits": bits,
        }

    def most_frequent(self) -> str:
        """The answer that training questions have most often."""
        counts = Counter(pair.answer for pair in self.pairs["train"])
        return max(sorted(counts), key=counts.__getitem__)

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each question its answer and whether the model gives it; for a text its bits."""
        examples = self.examples(split)
        found = []
        for number, (bits, count, right) in sorted(outputs.items()):
            example = examples[number]
            own = example._asdict() if isinstance(example, Pair) else {"text": example}
            found.append({**own, "right": right == count, "bits": bits / count})
        return found

    @property
    def input_reader(self) -> BirthplacesReader | None:
        return self._reader if self.part == "finetune" else None

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """The characters."""
        return self._reader.texts(tokens)

    def _corrupted(self, split: str, number: int) -> str:
        source = random.Random(f"birthplaces {self.seed} {split} {number}")
        return corrupted(self._lines[number % len(self._lines)], self.length, source)

    def _need_room(self) -> None:
        longest = max(
            (pair for pairs in self.pairs.values() for pair in pairs),
            key=lambda pair: len(pair.question) + len(pair.answer),
        )
        needed = len(longest.question) + len(longest.answer) + 1
        if needed > self.length:
            raise ValueError(
                f"birthplaces: length must be at least {needed} for {longest.question!r}, "
                f"got {self.length}"
            )


def corrupted(text: str, length: int, source: random.Random) -> str:
    """A text cut to 4 … 7/8 · length characters, with a span of it taken to its end.

    The span has 1 to about half of the characters, a quarter on average.
    """
    cut = text[: source.randint(4, length * 7 // 8)]
    # Rounded up or down by chance, so that the mean is a quarter for every length.
    quarter = max(1, int(len(cut) / 4 + source.random()))
    span = source.randint(1, 2 * quarter - 1)
    begin = source.randint(0, len(cut) - span)
    end = begin + span
    return f"{cut[:begin]}{MASK}{cut[end:]}{MASK}{cut[begin:end]}{MASK}"


def _story(folder: Path) -> Path | None:
    if not folder.is_dir():
        return None
    return next((path for path in sorted(folder.iterdir()) if kind_of(path) == ".txt"), None)


def _pairs(path: Path) -> list[Pair]:
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        question, tab, answer = line.partition("\t")
        if not tab:
            raise ValueError(
                f"{path}, line {number}: no TAB between question and answer in {line[:40]!r}"
            )
        found.append(Pair(question.strip(), answer.strip()))
    if not found:
        raise ValueError(f"{path} has no questions")
    return found


def _characters(pairs: list[Pair], lines: list[str]) -> str:
    known = {c for line in lines for c in line} | {c for pair in pairs for t in pair for c in t}
    return PAD + MASK + "".join(sorted(known - {PAD, MASK}))
