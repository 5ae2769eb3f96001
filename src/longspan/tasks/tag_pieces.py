"""Texts of words as rows of tokens: pieces that fit a row, and tags put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .token_files import Rows

__all__ = ["Piece", "Pieces", "Text", "first_tokens"]


class Text(NamedTuple):
    """The words of a sentence or document, and their tags, which new input has not."""

    words: list[str]
    tags: list[str]


class Piece(NamedTuple):
    """A part of a text that fits a row: its words from `low` to before `high`."""

    text: int
    low: int
    high: int


class Pieces(Sequence[Piece]):
    """All pieces of some texts, cut between words.

    Args:
        texts: words and tags.
        tokens: of each text.
        starts: which of these is the first of each word.
        ends: the marks at the begin and the end of a row.
        length: the most tokens of a row.
    """

    def __init__(
        self, texts: list[Text], tokens: Rows, starts: Rows, ends: Sequence[int], length: int
    ) -> None:
        self.texts = texts
        self._tokens, self._starts = tokens, starts
        self._ends, self._length = ends, length
        self._pieces: list[Piece] = []
        for number, own in enumerate(texts):
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
                while high < len(own.words) and places[high + 1] - places[low] <= length - 2:
                    high += 1
                self._pieces.append(Piece(number, low, high))
                low = high

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: Any) -> Any:
        return self._pieces[index]

    def row(self, number: int) -> Tensor:
        """The tokens of a piece, with the marks around them."""
        piece = self._pieces[number]
        tokens, starts = self._tokens[piece.text], self._starts[piece.text]
        begin = int(starts[piece.low])
        end = int(starts[piece.high]) if piece.high < len(starts) else len(tokens)
        # A single word can be longer than a row.
        inner = tokens[begin:end].long()[: self._length - 2]
        return torch.cat((torch.tensor(self._ends[:1]), inner, torch.tensor(self._ends[1:])))

    def places(self, number: int) -> Tensor:
        """Where in its row each word of a piece begins."""
        piece = self._pieces[number]
        starts = self._starts[piece.text]
        return starts[piece.low : piece.high].long() - int(starts[piece.low]) + 1

    def tags(self, number: int) -> list[str]:
        """Those of a piece's words."""
        piece = self._pieces[number]
        return self.texts[piece.text].tags[piece.low : piece.high]

    def joined(
        self, outputs: Mapping[int, Any], labels: Sequence[str]
    ) -> dict[int, list[str | None]]:
        """For each text that has an output its words' tags, of outputs that have a tag's number for
        every token; None for words of pieces without one.
        """
        found: dict[int, list[str | None]] = {}
        for number in sorted(outputs):
            piece = self._pieces[number]
            tags = found.setdefault(piece.text, [None] * len(self.texts[piece.text].words))
            given = [int(outputs[number][place]) for place in self.places(number).tolist()]
            tags[piece.low : piece.high] = [labels[tag] for tag in given]
        return found


def first_tokens(words: Sequence[int]) -> list[int]:
    """Where in a row of words' numbers each one occurs first."""
    return [n for n, word in enumerate(words) if n == 0 or word != words[n - 1]]
