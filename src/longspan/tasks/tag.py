"""A tag for every word: names, parts of speech, and other columns of CoNLL's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from ..errors import describe, need_int
from .batch import NOT_COUNTED, Batch
from .inputs import Inputs
from .progress import progress
from .reading import path_of, read_lines, source_of, splits_of
from .tag_pieces import Pieces, Text, first_tokens
from .task import apart
from .text_task import TextReader, TextTask
from .token_files import Ragged, RaggedWriter, cached, hash_of
from .tokenizing import AT_ONCE, Cache, special_token, tokenizer_of

__all__ = ["Tag", "TagReader"]

KINDS = (
    "",
    ".txt",
    ".conll",
    ".bio",
    ".iob",
    ".iob2",
    ".tsv",
    ".train",
    ".dev",
    ".testa",
    ".testb",
)

# A line that begins with this begins a document.
DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TagReader(TextReader):
    """Rows of words, each of which gets a tag.

    Attributes:
        labels: the tags, in the order of their numbers.
        length: the most tokens of a row.
    """

    labels: Sequence[str]
    length: int

    reads = ("words",)

    def check(self, record: Mapping[str, Any]) -> None:
        """Raises unless `words` is a text, or a list of words."""
        words = record.get("words")
        listed = isinstance(words, list) and all(isinstance(own, str) for own in words)
        if not listed:
            super().check(record)
        if not _words(record) or not all(own.strip() for own in _words(record)):
            raise ValueError("'words' must have at least one word, and none that is empty")

    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Words, as a list or as a text with blanks between them; each word gets a tag."""
        texts = [Text(_words(own), []) for own in records]
        encodings = list(self.encoded(texts))
        pieces = Pieces(
            texts,
            [torch.tensor(own.ids) for own in encodings],
            [torch.tensor(first_tokens(own.word_ids)) for own in encodings],
            self.ends,
            self.length,
        )

        def predictions(outputs: Mapping[int, Any]) -> list[Any]:
            joined = pieces.joined(outputs, self.labels)
            return [joined[number] for number in range(len(records))]

        return Inputs(len(pieces), lambda numbers: self.collated(pieces, numbers), predictions)

    @cached_property
    def ends(self) -> list[int]:
        """The marks at the begin and the end of a row."""
        return [special_token(self.tokenizer, what) for what in ("first", "between")]

    def encoded(self, texts: list[Text]) -> Iterator[Any]:
        """Each text as the tokenizer gives it, which is told of the words."""
        with progress("tokenising", len(texts)) as advance:
            for begin in range(0, len(texts), AT_ONCE):
                some = [own.words for own in texts[begin : begin + AT_ONCE]]
                yield from self.tokenizer.encode_batch(
                    some, is_pretokenized=True, add_special_tokens=False
                )
                advance(len(some))

    def collated(self, pieces: Pieces, numbers: Sequence[int]) -> Batch:
        """Pieces of these numbers, side by side; a tag is asked where a word begins."""
        rows, asked = [pieces.row(number) for number in numbers], []
        for number, row in zip(numbers, rows, strict=True):
            tags = torch.full_like(row, NOT_COUNTED)
            own = [self.labels.index(tag) for tag in pieces.tags(number)]
            if own:
                tags[pieces.places(number)] = torch.tensor(own)
            asked.append(tags)
        return Batch.of(
            rows, {"tags": asked}, pad=special_token(self.tokenizer, "pad"), numbers=numbers
        )


class Tag(TextTask):
    """Give every word of a text its tag.

    A row is `[CLS] words [SEP]`. A word's tag is asked at the first of its tokens. A text that is
    longer than a row is cut between words, and put together again to be scored. The measure is F1
    in percent over whole spans (names, as `B-` and `I-` mark them), as seqeval gives it.

    Args:
        data: a file of lines of columns, parted by blanks, with an empty line after each sentence
            (CoNLL), or a folder with one for training (`train…`) and one to be measured on
            (`dev…`, `val…`, `test…`); plain, .gz or .xz.
        dev: the file to be measured on; without any, one of every ten texts of `data`.
        word: the column of the word, from 0; from the end, if negative.
        tag: the column of the tag.
        by: a text is a `"sentence"`, or a `"document"`: all up to the next `-DOCSTART-`.
        length: the most tokens of a row.
        tokenizer: a `tokenizer.json` or a folder that has one; None to learn one.
        vocabulary: the most tokens of one that is learned.
        cache: the folder for tokens; `~/.cache/longspan` by default.

    Attributes:
        labels: the tags, in the order of their numbers.
    """

    name = "tag"
    reader = TagReader
    objective = "tags"
    metric = "span_f1"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        dev: str | Path | None = None,
        word: int = 0,
        tag: int = -1,
        by: Literal["sentence", "document"] = "sentence",
        length: int = 512,
        tokenizer: str | Path | None = None,
        vocabulary: int = 8000,
        cache: Cache = None,
    ) -> None:
        if data is None:
            raise ValueError("tag: name the data, a file or folder in CoNLL's columns")
        if by not in ("sentence", "document"):
            raise ValueError(f"tag: by must be 'sentence' or 'document', got {describe(by)}")
        need_int("tag: word", word)
        need_int("tag: tag", tag)
        need_int("tag: length", length, at_least=8)
        self.data = str(data)
        self.length = length
        self.settings = {
            "dev": None if dev is None else str(dev),
            "word": word,
            "tag": tag,
            "by": by,
            "length": length,
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "vocabulary": vocabulary,
        }
        other = None if dev is None else path_of("tag: dev", dev)
        paths = splits_of(path_of("tag: data", data), other, KINDS)
        self.files = [source_of(path) for path in paths if path is not None]
        learn = _read(paths.train, word, tag, by)
        if paths.dev is not None:
            measure = _read(paths.dev, word, tag, by)
        else:
            learn, measure = apart(learn, paths.train)
        self.labels = sorted({tag for own in (*learn, *measure) for tag in own.tags})
        self.classes = len(self.labels)
        sentences = [" ".join(own.words) for own in learn]
        self._use(tokenizer_of(tokenizer, sentences, vocabulary, cache=cache, lowercase=False))
        self._reader = TagReader(self.tokenizer, self.labels, length)
        self.train = self._pieces(learn, cache)
        self.dev = self._pieces(measure, cache)

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Pieces of these numbers."""
        return self._reader.collated(self._split(split), numbers)

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """F1, precision and recall of spans, and accuracy of tags, in percent."""
        seqeval = _seqeval()
        pieces = self._split(split)
        wanted, given = [], []
        for number, tags in pieces.joined(outputs, self.labels).items():
            own = pieces.texts[number].tags
            # Words of pieces that have no output are not counted.
            wanted.append([tag for tag, got in zip(own, tags, strict=True) if got is not None])
            given.append([tag for tag in tags if tag is not None])
        return {
            "span_f1": 100 * float(seqeval.f1_score(wanted, given, zero_division=0)),
            "precision": 100 * float(seqeval.precision_score(wanted, given, zero_division=0)),
            "recall": 100 * float(seqeval.recall_score(wanted, given, zero_division=0)),
            "accuracy": 100 * float(seqeval.accuracy_score(wanted, given)),
        }

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each text its words, the tags that were given, and its own."""
        pieces = self._split(split)
        return [
            {"words": pieces.texts[n].words, "tags": tags, "right": pieces.texts[n].tags}
            for n, tags in pieces.joined(outputs, self.labels).items()
        ]

    @property
    def input_reader(self) -> TagReader:
        return self._reader

    def _split(self, split: str) -> Pieces:
        found = self.examples(split)
        assert isinstance(found, Pieces)
        return found

    def _pieces(self, texts: list[Text], cache: Cache) -> Pieces:
        """Tokenises texts once, and cuts them."""

        def make(folder: Path) -> None:
            with RaggedWriter(folder, "tokens") as tokens, RaggedWriter(folder, "starts") as starts:
                for found in self._reader.encoded(texts):
                    tokens.add(found.ids)
                    starts.add(first_tokens(found.word_ids))

        words = hash_of("\t".join(own.words) for own in texts)
        key = {"words": words, "tokenizer": hash_of([self.tokenizer.to_str()])}
        folder = cached("tagged", key, make, cache=cache)
        tokens, starts = Ragged.read(folder, "tokens"), Ragged.read(folder, "starts")
        return Pieces(texts, tokens, starts, self._reader.ends, self.length)


def _read(path: Path, word: int, tag: int, by: str) -> list[Text]:
    found = [Text([], [])]
    for number, line in enumerate(read_lines(path), 1):
        # At blanks and tabs alone: words may have other spaces inside.
        columns = re.split(r"[ \t]+", stripped) if (stripped := line.strip(" \t\r")) else []
        if not columns or columns[0] == DOCUMENT:
            if found[-1].words and (by == "sentence" or columns):
                found.append(Text([], []))
            continue
        try:
            found[-1].words.append(columns[word])
            found[-1].tags.append(columns[tag])
        except IndexError:
            raise ValueError(
                f"{path}, line {number}: no column {max(word, tag, key=abs)} among "
                f"{len(columns)}: {line[:40]!r}; name others with word=… and tag=…"
            ) from None
        if len(columns) < 2:
            raise ValueError(f"{path}, line {number}: a word and its tag, got {line[:40]!r} alone")
    found = [own for own in found if own.words]
    if not found:
        raise ValueError(f"{path} has no words")
    return found


def _words(record: Mapping[str, Any]) -> list[str]:
    words = record["words"]
    return list(words) if isinstance(words, list) else words.split()


def _seqeval() -> Any:
    try:
        import seqeval.metrics
    except ImportError as error:
        raise ImportError("tag is scored by seqeval: pip install 'longspan[metrics]'") from error
    return seqeval.metrics
