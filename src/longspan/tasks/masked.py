"""Masked language modelling of text, or of DNA."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import need_int, need_number
from .batch import NOT_COUNTED, Batch
from .fasta import LETTERS, documents_of, read_fasta
from .reading import kind_of, path_of, read_lines, source_of, splits_of
from .task import Examples, apart
from .text_task import TextTask
from .token_files import Ragged
from .tokenizing import (
    Cache,
    learn_pieces,
    load_tokenizer,
    special_token,
    token_rows,
    tokenizer_of,
)

__all__ = ["Masked", "Stretch"]

DNA = (".fa", ".fasta", ".fna")
TEXT = (".txt", "")


class Stretch(NamedTuple):
    """A part of a document: its tokens from `low` to before `high`, hidden as a draw says."""

    document: int
    low: int
    high: int
    draw: int


class Masked(TextTask):
    """Name the tokens that were hidden.

    A row is `[CLS] tokens [SEP]`, a stretch of a document. Of its tokens some are asked: of these
    eight in ten are hidden behind a mark, one is another token, and one stays as it is (BERT's
    way). What is asked of an example is always the same; each stretch comes in `draws` examples
    with different tokens hidden. The measure is bits a hidden token; beside it, how many were
    named.

    Args:
        data: a text (.txt), whose documents are parted by empty lines (without any, each line is
            one), or DNA (.fa, .fasta, .fna); or a folder with one of these for training (`train…`)
            and one to be measured on (`dev…`, `val…`, `test…`). Plain, .gz or .xz.
            A genome is cut, `splits` times and each time anew, into pieces of 500 to 1,000 bases,
            and documents of 50 to 100 pieces, between which there is a `[SEP]` (BigBird's way).
        dev: the file to be measured on; without any, every tenth document, or sequence of DNA (of
            a single one, the last twentieth).
        length: the most tokens of a row.
        share: of the tokens that are asked; None for 15 % of a text's and 10 % of a genome's.
        draws: how many examples a stretch is.
        splits: how often a genome is cut anew to learn from.
        tokenizer: a `tokenizer.json` or a folder that has one; None to learn one.
        vocabulary: the most tokens of one that is learned; for DNA, 32,000 are about eight bases
            a token where there is a genome to learn them from.
        seed: decides cuts and what is hidden.
        cache: the folder for tokens; `~/.cache/longspan` by default.
    """

    name = "masked"
    objective = "masked"
    metric = "bits"
    lower_is_better = True

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        dev: str | Path | None = None,
        length: int = 512,
        share: float | None = None,
        draws: int = 10,
        splits: int = 10,
        tokenizer: str | Path | None = None,
        vocabulary: int = 8000,
        seed: int = 0,
        cache: Cache = None,
    ) -> None:
        if data is None:
            raise ValueError("masked: name the data, a text or FASTA file, or a folder of these")
        need_int("masked: length", length, at_least=8)
        for name, value in (("draws", draws), ("splits", splits)):
            need_int(f"masked: {name}", value, at_least=1)
        need_int("masked: seed", seed)
        other = None if dev is None else path_of("masked: dev", dev)
        paths = splits_of(path_of("masked: data", data), other, (*DNA, *TEXT))
        self.files = [source_of(path) for path in paths if path is not None]
        self.dna = kind_of(paths.train) in DNA
        share = (0.1 if self.dna else 0.15) if share is None else share
        need_number("masked: share", share)
        if not 0 < share < 1:
            raise ValueError(f"masked: share must lie between 0 and 1, got {share}")
        self.data = str(data)
        self.length = length
        self.share = share
        self.seed = seed
        self.settings = {
            "dev": None if dev is None else str(dev),
            "length": length,
            "share": share,
            "draws": draws,
            "splits": splits,
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "vocabulary": vocabulary,
            "seed": seed,
        }
        read = self._genome if self.dna else _documents
        learn, measure = read(paths.train, paths.dev)
        pieces = [piece for document in learn for piece in document]
        if self.dna and tokenizer is None:
            # One split has every base; more would only repeat them.
            some = pieces[: len(pieces) // splits + 1]
            learned = learn_pieces(some, vocabulary, letters=LETTERS, cache=cache)
            self._use(load_tokenizer(learned))
        else:
            self._use(tokenizer_of(tokenizer, pieces, vocabulary, cache=cache))
        self._mask = special_token(self.tokenizer, "mask")
        self._first = special_token(self.tokenizer, "first")
        self._between = special_token(self.tokenizer, "between")
        marks = {self.pad, self._mask, self._first, self._between}
        self._ordinary = [t for t in range(self.vocabulary) if t not in marks]
        self._rows: dict[str, Documents] = {}
        self.train = self._stretches("train", learn, draws, cache)
        self.dev = self._stretches("dev", measure, 1, cache)

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Stretches of these numbers, with tokens hidden."""
        examples = self.examples(split)
        rows, targets = [], []
        for number in numbers:
            row, target = self._hidden(split, examples[number])
            rows.append(row)
            targets.append(target)
        return Batch.of(rows, {"tokens": targets}, pad=self.pad, numbers=numbers)

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """Bits a hidden token, and how many were named, in percent."""
        self.examples(split)
        count = sum(count for _, count, _ in outputs.values())
        return {
            "bits": sum(nats for _, _, nats in outputs.values()) / math.log(2) / count,
            "accuracy": 100 * sum(right for right, _, _ in outputs.values()) / count,
        }

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each stretch how many tokens were hidden and how many of them named."""
        examples = self.examples(split)
        return [
            {
                "number": number,
                "document": examples[number].document,
                "hidden": count,
                "right": right,
                "bits": nats / math.log(2) / max(count, 1),
            }
            for number, (right, count, nats) in sorted(outputs.items())
        ]

    def _genome(self, train: Path, dev: Path | None) -> tuple[list[list[str]], list[list[str]]]:
        sequences = read_fasta(train)
        if dev is not None:
            measured = read_fasta(dev)
        elif len(sequences) > 1:
            sequences, measured = apart(sequences, train)
        else:
            cut = len(sequences[0]) * 19 // 20
            sequences, measured = [sequences[0][:cut]], [sequences[0][cut:]]
        splits = self.settings["splits"]
        return documents_of(sequences, splits, self.seed), documents_of(measured, 1, self.seed)

    def _stretches(
        self, split: str, documents: list[list[str]], draws: int, cache: Cache
    ) -> Examples[Stretch]:
        pieces = [piece for document in documents for piece in document]
        rows = token_rows(self.tokenizer, pieces, "tokenising", cache=cache)
        own = Documents(rows, [len(document) for document in documents], self._between)
        self._rows[split] = own
        room = self.length - 2
        found = [
            (document, low, min(low + room, count))
            for document, count in enumerate(own.lengths)
            for low in range(0, count, room)
        ]
        return Examples(
            draws * len(found),
            lambda n: Stretch(*found[n % len(found)], n // len(found)),
        )

    def _hidden(self, split: str, stretch: Stretch) -> tuple[Tensor, Tensor]:
        """A row in which tokens are hidden, and what is asked at each place."""
        tokens = self._rows[split].tokens(stretch.document, stretch.low, stretch.high)
        row = torch.tensor([self._first, *tokens, self._between])
        target = torch.full_like(row, NOT_COUNTED)
        free = [n for n, token in enumerate(tokens, 1) if token != self._between]
        source = random.Random(f"masked {self.seed} {split} {stretch}")
        count = min(len(free), max(1, round(self.share * len(free))))
        for place in source.sample(free, count):
            target[place] = row[place]
            what = source.random()
            if what < 0.8:
                row[place] = self._mask
            elif what < 0.9:
                row[place] = source.choice(self._ordinary)
        return row, target


class Documents:
    """Documents of pieces, whose tokens lie in one file; a mark stands between pieces."""

    def __init__(self, rows: Ragged, counts: list[int], between: int) -> None:
        self._rows = rows
        self._between = between
        self._first = [0]
        for count in counts:
            self._first.append(self._first[-1] + count)
        sizes = rows.lengths().tolist()
        self.lengths = [
            sum(sizes[low:high]) + high - low - 1
            for low, high in zip(self._first[:-1], self._first[1:], strict=True)
        ]

    def tokens(self, document: int, low: int, high: int) -> list[int]:
        """A document's tokens from `low` to before `high`."""
        found: list[int] = []
        for piece in range(self._first[document], self._first[document + 1]):
            if found:
                found.append(self._between)
            found += self._rows[piece].tolist()
            if len(found) >= high:
                break
        return found[low:high]


def _documents(train: Path, dev: Path | None) -> tuple[list[list[str]], list[list[str]]]:
    """Documents of a text; each is one piece."""
    learn = _parted(train)
    if dev is not None:
        return [[text] for text in learn], [[text] for text in _parted(dev)]
    learn, measure = apart(learn, train)
    return [[text] for text in learn], [[text] for text in measure]


def _parted(path: Path) -> list[str]:
    lines = "\n".join(line.strip() for line in read_lines(path)).strip("\n").split("\n")
    if "" not in lines:
        return lines
    found = "\n".join(lines).split("\n\n")
    texts = [text.strip() for text in found if text.strip()]
    if not texts:
        raise ValueError(f"{path} has no text")
    return texts
