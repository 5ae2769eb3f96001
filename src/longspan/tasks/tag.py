"""A tag for every word: names, parts of speech, and other columns of CoNLL's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import describe, need_int
from .batch import NOT_COUNTED, Batch, padded, real_of
from .progress import progress
from .reading import read_lines, source_of, splits_of
from .task import Examples, Task, apart
from .token_files import Ragged, RaggedWriter, cached, hash_of
from .tokenizing import AT_ONCE, Cache, readable, save_tokenizer, special_token, tokenizer_of

__all__ = ["Piece", "Tag"]

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


class Text(NamedTuple):
    """The words of a sentence or document, and their tags."""

    words: list[str]
    tags: list[str]


class Piece(NamedTuple):
    """A part of a text that fits a row: its words from `low` to before `high`."""

    text: int
    low: int
    high: int


class Tag(Task):
    """Give every word of a text its tag.

    A row is `[CLS] words [SEP]`. A word's tag is asked at the first of its tokens. A text that is
    longer than a row is cut between words, and put together again to be scored. The measure is F1
    in percent over whole spans (names, as `B-` and `I-` mark them), as seqeval gives it.

    Args:
        data: a file of lines of columns, parted by blanks, with an empty line after each sentence
            (CoNLL), or a folder with one for training (`train…`) and one to be measured on
            (`dev…`, `val…`, `test…`); plain, .gz or .xz.
        dev: the file to be measured on; without any, every tenth text of `data`.
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
        other = None if dev is None else Path(dev).expanduser()
        paths = splits_of(Path(data).expanduser(), other, KINDS)
        self.files = [source_of(path) for path in paths if path is not None]
        learn = _read(paths.train, word, tag, by)
        if paths.dev is not None:
            measure = _read(paths.dev, word, tag, by)
        else:
            learn, measure = apart(learn, paths.train)
        self.labels = sorted({tag for own in (*learn, *measure) for tag in own.tags})
        self.classes = len(self.labels)
        sentences = [" ".join(own.words) for own in learn]
        self.tokenizer = tokenizer_of(
            tokenizer, sentences, vocabulary, cache=cache, lowercase=False
        )
        self.vocabulary = self.tokenizer.get_vocab_size()
        self.pad = special_token(self.tokenizer, "pad")
        self._ends = [special_token(self.tokenizer, what) for what in ("first", "between")]
        self._texts = {"train": learn, "dev": measure}
        self._rows = {s: self._tokens(texts, cache) for s, texts in self._texts.items()}
        self.train = self._pieces("train")
        self.dev = self._pieces("dev")

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Pieces of these numbers."""
        examples = self.examples(split)
        rows, tags = [], []
        for number in numbers:
            row, tag = self._row(split, examples[number])
            rows.append(row)
            tags.append(tag)
        return Batch(
            tokens=padded(rows, self.pad),
            real=real_of(rows),
            targets={"tags": padded(tags, NOT_COUNTED)},
            numbers=list(numbers),
        )

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """F1, precision and recall of spans, and accuracy of tags, in percent."""
        seqeval = _seqeval()
        wanted, given = [], []
        for number, tags in self._joined(outputs, split).items():
            own = self._texts[split][number].tags
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
        texts = self._texts[split]
        return [
            {"words": texts[n].words, "tags": tags, "right": texts[n].tags}
            for n, tags in self._joined(outputs, split).items()
        ]

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Tokens as they are in the vocabulary."""
        return readable(self.tokenizer, tokens)

    def save(self, folder: Path) -> list[Path]:
        """Writes the tokenizer."""
        return [save_tokenizer(self.tokenizer, folder)]

    def _tokens(self, texts: list[Text], cache: Cache) -> tuple[Ragged, Ragged]:
        """Each text's tokens, and which of them is the first of each word."""

        def make(folder: Path) -> None:
            with (
                RaggedWriter(folder, "tokens") as tokens,
                RaggedWriter(folder, "starts") as starts,
                progress("tokenising", len(texts)) as advance,
            ):
                for begin in range(0, len(texts), AT_ONCE):
                    some = [own.words for own in texts[begin : begin + AT_ONCE]]
                    for found in self.tokenizer.encode_batch(
                        some, is_pretokenized=True, add_special_tokens=False
                    ):
                        tokens.add(found.ids)
                        starts.add(_firsts(found.word_ids))
                    advance(len(some))

        words = hash_of("\t".join(own.words) for own in texts)
        key = {"words": words, "tokenizer": hash_of([self.tokenizer.to_str()])}
        folder = cached("tagged", key, make, cache=cache)
        return Ragged(folder, "tokens"), Ragged(folder, "starts")

    def _pieces(self, split: str) -> Examples[Piece]:
        found = []
        tokens, starts = self._rows[split]
        for number, own in enumerate(self._texts[split]):
            places = [*starts[number].tolist(), len(tokens[number])]
            if len(places) != len(own.words) + 1:
                lost = len(own.words) + 1 - len(places)
                raise ValueError(
                    f"tokenizer: it gives no token to {lost} words of the text that begins "
                    f"{' '.join(own.words[:5])!r}; use one that knows all characters"
                )
            low = 0
            while low < len(own.words):
                high = low + 1
                while high < len(own.words) and places[high + 1] - places[low] <= self.length - 2:
                    high += 1
                found.append(Piece(number, low, high))
                low = high
        return Examples(len(found), found.__getitem__)

    def _row(self, split: str, piece: Piece) -> tuple[Tensor, Tensor]:
        tokens, starts = (rows[piece.text] for rows in self._rows[split])
        begin = int(starts[piece.low])
        end = int(starts[piece.high]) if piece.high < len(starts) else len(tokens)
        # A single word can be longer than a row.
        inner = tokens[begin:end].long()[: self.length - 2]
        row = torch.cat((torch.tensor(self._ends[:1]), inner, torch.tensor(self._ends[1:])))
        tags = torch.full_like(row, NOT_COUNTED)
        own = self._texts[split][piece.text].tags[piece.low : piece.high]
        tags[self._places(split, piece)] = torch.tensor([self.labels.index(tag) for tag in own])
        return row, tags

    def _places(self, split: str, piece: Piece) -> Tensor:
        """Where in its row each word of a piece begins."""
        starts = self._rows[split][1][piece.text]
        return starts[piece.low : piece.high].long() - int(starts[piece.low]) + 1

    def _joined(self, outputs: Mapping[int, Any], split: str) -> dict[int, list[str | None]]:
        """The tags of each text that has an output; None for words of pieces without one."""
        examples = self.examples(split)
        found: dict[int, list[str | None]] = {}
        for number in sorted(outputs):
            piece = examples[number]
            tags = found.setdefault(piece.text, [None] * len(self._texts[split][piece.text].words))
            given = [outputs[number][place] for place in self._places(split, piece).tolist()]
            tags[piece.low : piece.high] = [self.labels[int(tag)] for tag in given]
        return found


def _read(path: Path, word: int, tag: int, by: str) -> list[Text]:
    found = [Text([], [])]
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split()
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
                f"{len(columns)}: {line[:40]!r}"
            ) from None
        if len(columns) < 2:
            raise ValueError(f"{path}, line {number}: a word and its tag, got {line[:40]!r} alone")
    found = [own for own in found if own.words]
    if not found:
        raise ValueError(f"{path} has no words")
    return found


def _firsts(words: list[int]) -> list[int]:
    """Where in a row of words' numbers each one occurs first."""
    return [n for n, word in enumerate(words) if n == 0 or word != words[n - 1]]


def _seqeval() -> Any:
    try:
        import seqeval.metrics
    except ImportError as error:
        raise ImportError("tag is scored by seqeval: pip install 'longspan[metrics]'") from error
    return seqeval.metrics
