"""Translation from one language to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import describe, need_int, need_text
from .batch import NOT_COUNTED, Batch, padded, real_of
from .cutting import say_cut
from .inputs import Inputs
from .reading import SourceFile, path_of, read_lines, source_of, splits_of
from .task import Examples, apart
from .text_task import TextReader, TextTask
from .tokenizing import (
    Cache,
    special_token,
    token_rows,
    token_rows_now,
    tokenizer_of,
)

__all__ = ["Pair", "Translate", "TranslateReader"]

TABLES = (".tsv", ".txt")
DEV_NAMES = ("dev", "val", "test")


class Pair(NamedTuple):
    """A text and its translation."""

    source: str
    target: str


class Row(NamedTuple):
    """The same as tokens."""

    source: Tensor
    target: Tensor


@dataclass(frozen=True)
class TranslateReader(TextReader):
    """Rows of a text to read, and of a translation to write.

    Attributes:
        length: the most tokens of a text.
    """

    length: int

    reads = ("source",)

    @cached_property
    def marks(self) -> tuple[int, int, int]:
        """The token that a decoder begins with, the one that ends a text, and the one that fills
        short rows.
        """
        first, end, pad = (
            special_token(self.tokenizer, what) for what in ("first", "between", "pad")
        )
        return first, end, pad

    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Texts in `source` without a translation; each gets one."""
        sources = token_rows_now(self.tokenizer, [own["source"] for own in records])
        self.note_cut([len(own) for own in sources])
        nothing = torch.zeros(0, dtype=torch.int64)

        def batch(numbers: Sequence[int]) -> Batch:
            rows = [Row(sources[n][: self.length - 1].long(), nothing) for n in numbers]
            return self.collated(rows, numbers)

        def predictions(outputs: Mapping[int, Any]) -> list[str]:
            return [self.text(outputs[number]) for number in range(len(records))]

        return Inputs(len(records), batch, predictions)

    def collated(self, rows: Sequence[Row], numbers: Sequence[int]) -> Batch:
        """Pairs side by side."""
        begin, last, pad = self.marks
        end = torch.tensor([last])
        sources = [torch.cat((row.source, end)) for row in rows]
        inputs = [torch.cat((torch.tensor([begin]), row.target)) for row in rows]
        targets = [torch.cat((row.target, end)) for row in rows]
        return Batch(
            tokens=padded(inputs, pad),
            real=real_of(inputs),
            source={"tokens": padded(sources, pad), "real": real_of(sources)},
            targets={"tokens": padded(targets, NOT_COUNTED)},
            numbers=list(numbers),
        )

    def note_cut(self, lengths: Sequence[int]) -> None:
        """Warns of texts of so many tokens that are cut."""
        say_cut("translate", "texts", lengths, self.length - 1, f"length={self.length}")

    def text(self, tokens: Sequence[int]) -> str:
        """What was written."""
        found: str = self.tokenizer.decode([int(token) for token in tokens])
        return found.strip()


class Translate(TextTask):
    """Write a text in another language.

    The encoder reads `text [SEP]`; the decoder reads `[CLS] translation` and is asked for
    `translation [SEP]`. Both languages share one vocabulary. Measures are BLEU and chrF, as
    sacrebleu gives them for whole texts.

    Args:
        data: a folder with aligned texts, one sentence a line, whose names end in the languages:
            `train.de`, `train.en`, and `dev`, `val` or `test` with the same endings; or a table
            (.tsv or .txt) with a TAB between columns, or a folder with `train….tsv` and
            `dev….tsv`. Plain, .gz or .xz.
        source: the ending of the texts to translate.
        target: the ending of their translations.
        columns: of a table, that of the text and that of the translation, from 0.
        dev: the table to be measured on, or the begin of the names of aligned texts
            (`…/test_2016_flickr`); without any, one of every ten pairs of `data`.
        length: the most tokens of a text; what is longer is cut when learning.
        tokenizer: a `tokenizer.json` or a folder that has one; None to learn one.
        vocabulary: the most tokens of one that is learned.
        cache: the folder for tokens; `~/.cache/longspan` by default.

    Attributes:
        begin: the token that a decoder begins with.
        end: the token that ends a text.
    """

    name = "translate"
    reader = TranslateReader
    objective = "translation"
    metric = "bleu"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        source: str = "de",
        target: str = "en",
        columns: Sequence[int] = (0, 1),
        dev: str | Path | None = None,
        length: int = 128,
        tokenizer: str | Path | None = None,
        vocabulary: int = 8000,
        cache: Cache = None,
    ) -> None:
        if data is None:
            raise ValueError("translate: name the data, a folder of aligned texts or a table")
        need_text("translate: source", source)
        need_text("translate: target", target)
        if not isinstance(columns, Sequence) or len(columns) != 2:
            raise ValueError(f"translate: columns must be two numbers, got {describe(columns)}")
        for column in columns:
            need_int("translate: columns", column, at_least=0)
        need_int("translate: length", length, at_least=2)
        self.data = str(data)
        self.length = length
        self.settings = {
            "source": source,
            "target": target,
            "columns": list(columns),
            "dev": None if dev is None else str(dev),
            "length": length,
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "vocabulary": vocabulary,
        }
        self.files = []
        learn, measure = self._read(path_of("translate: data", data), dev)
        texts = [text for pair in learn for text in pair]
        self._use(tokenizer_of(tokenizer, texts, vocabulary, cache=cache, lowercase=False))
        self._reader = TranslateReader(self.tokenizer, length)
        self.begin, self.end, _ = self._reader.marks
        self.pairs = {"train": learn, "dev": measure}
        self.train = self._rows(learn, cache)
        self.dev = self._rows(measure, cache)

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Pairs of these numbers."""
        examples = self.examples(split)
        return self._reader.collated([examples[number] for number in numbers], numbers)

    @property
    def input_reader(self) -> TranslateReader:
        return self._reader

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """BLEU and chrF of all texts together."""
        self.examples(split)
        sacrebleu = _sacrebleu()
        numbers = sorted(outputs)
        given = [self._reader.text(outputs[number]) for number in numbers]
        wanted = [[self.pairs[split][number].target for number in numbers]]
        return {
            "bleu": float(sacrebleu.corpus_bleu(given, wanted).score),
            "chrf": float(sacrebleu.corpus_chrf(given, wanted).score),
        }

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each text what was written, and its translation."""
        self.examples(split)
        return [
            {
                "number": number,
                "source": self.pairs[split][number].source,
                "translation": self._reader.text(tokens),
                "right": self.pairs[split][number].target,
            }
            for number, tokens in sorted(outputs.items())
        ]

    def _rows(self, pairs: list[Pair], cache: Cache) -> Examples[Row]:
        sources, targets = (
            token_rows(self.tokenizer, [pair[side] for pair in pairs], "tokenising", cache=cache)
            for side in (0, 1)
        )
        self._reader.note_cut([*sources.lengths().tolist(), *targets.lengths().tolist()])
        room = self.length - 1  # a mark ends or begins every row
        return Examples(
            len(pairs),
            lambda n: Row(sources[n][:room].long(), targets[n][:room].long()),
        )

    def _read(self, data: Path, dev: str | Path | None) -> tuple[list[Pair], list[Pair]]:
        other = None if dev is None else path_of("translate: dev", dev)
        if data.is_dir() and self._aligned(data / "train") is not None:
            train = data / "train"
            found = [data / name for name in DEV_NAMES]
            measured = other or next((own for own in found if self._aligned(own)), None)
            learn = self._aligned_pairs(train)
            if measured is None:
                return apart(learn, data)
            return learn, self._aligned_pairs(measured)
        try:
            paths = splits_of(data, other, TABLES)
        except ValueError:
            raise ValueError(
                f"{data} has neither train.{self.settings['source']} and "
                f"train.{self.settings['target']} nor a table train….tsv: name the endings with "
                "source=… and target=…"
            ) from None
        learn = self._table(paths.train)
        return (learn, self._table(paths.dev)) if paths.dev else apart(learn, paths.train)

    def _aligned(self, begin: Path) -> tuple[Path, Path] | None:
        """The two files whose names begin so, if they are there."""
        found = []
        for ending in (self.settings["source"], self.settings["target"]):
            names = [begin.with_name(f"{begin.name}.{ending}{c}") for c in ("", ".gz", ".xz")]
            found += [path for path in names if path.is_file()][:1]
        return (found[0], found[1]) if len(found) == 2 else None

    def _aligned_pairs(self, begin: Path) -> list[Pair]:
        paths = self._aligned(begin)
        if paths is None:
            raise FileNotFoundError(
                f"there are no files {begin}.{self.settings['source']} and "
                f"{begin}.{self.settings['target']}"
            )
        sources, targets = (read_lines(self._noted(path)) for path in paths)
        if len(sources) != len(targets):
            raise ValueError(
                f"{paths[0]} has {len(sources)} lines and {paths[1]} has {len(targets)}: "
                "each line must have its translation"
            )
        return [Pair(*both) for both in zip(sources, targets, strict=True)]

    def _table(self, path: Path) -> list[Pair]:
        found = []
        for number, line in enumerate(read_lines(self._noted(path)), 1):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) < 2:
                raise ValueError(f"{path}, line {number}: no TAB in {line[:40]!r}")
            one, two = self.settings["columns"]
            if max(one, two) >= len(columns):
                raise ValueError(
                    f"{path}, line {number}: no column {max(one, two)} among {len(columns)}"
                )
            found.append(Pair(columns[one].strip(), columns[two].strip()))
        if not found:
            raise ValueError(f"{path} has no pairs")
        return found

    def _noted(self, path: Path) -> Path:
        """The path, which is from now on among the files that were read."""
        self.files: list[SourceFile]
        self.files.append(source_of(path))
        return path


def _sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError(
            "translate is scored by sacrebleu: pip install 'longspan[metrics]'"
        ) from error
    return sacrebleu
