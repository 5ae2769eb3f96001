"""Questions and the texts they are about as rows of tokens, and answers found in these rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import need_bool, need_int
from .batch import NOT_COUNTED, Batch, padded, real_of
from .squad_files import Question, Questions
from .token_files import Ragged, RaggedWriter, Rows
from .tokenizing import encoded, special_token

__all__ = ["Found", "Reader", "Window", "Windows", "tokens_in_memory", "write_tokens"]


class Tokens(NamedTuple):
    """Texts as tokens.

    Attributes:
        questions: tokens of each question.
        contexts: tokens of each text.
        begins: the first character of each of these.
        ends: after their last character.
    """

    questions: Rows
    contexts: Rows
    begins: Rows
    ends: Rows

    @classmethod
    def read(cls, folder: Path) -> Tokens:
        """Those that `write_tokens` wrote."""
        return cls(*(Ragged(folder, name) for name in cls._fields))


class Window(NamedTuple):
    """A question beside a part of its text: the tokens from `low` to before `high`."""

    question: int
    low: int
    high: int


class Found(NamedTuple):
    """A model's answer to a question.

    Attributes:
        text: as it stands in the context; empty where there is none.
        start: the place of its first character in the context; −1 where there is none.
        end: after its last character.
        score: of the span.
        absent: by how much "no answer" scores above it.
        window: the number of the window that it was found in; −1 where there is none.
        first: its first token in that window's row.
        last: its last token there.
    """

    text: str
    start: int
    end: int
    score: float
    absent: float
    window: int = -1
    first: int = -1
    last: int = -1


# Of a question for which no span was given; as sure as can be, and still a number in JSON.
NOTHING = Found("", -1, -1, 0.0, sys.float_info.max)


class Reader:
    """How a question and a part of a text become one row: `[CLS] question [SEP] text [SEP]`.

    Tokenizers of RoBERTa's kind put two marks in the middle; they say so themselves.

    Args:
        tokenizer: of `tokenizers`.
        length: the most tokens of a row.
        stride: from the begin of a window on the text to the begin of the next.
        question_length: the most tokens of a question; what is longer is cut.
        global_tokens: whether the question's are global.
    """

    def __init__(
        self,
        tokenizer: Any,
        length: int,
        stride: int,
        question_length: int,
        *,
        global_tokens: bool = True,
    ) -> None:
        need_int("squad: length", length, at_least=8)
        need_int("squad: stride", stride, at_least=1)
        need_int("squad: question_length", question_length, at_least=1)
        self.tokenizer = tokenizer
        self.length = length
        self.stride = stride
        self.question_length = question_length
        need_bool("squad: global_tokens", global_tokens)
        self.global_tokens = global_tokens
        self.pad = special_token(tokenizer, "pad")
        first, between = special_token(tokenizer, "first"), special_token(tokenizer, "between")
        # A pair has two marks in the middle where it has four in all.
        middle = 2 if tokenizer.num_special_tokens_to_add(True) == 4 else 1
        self._first = torch.tensor([first])
        self._middle = torch.tensor([between] * middle)
        self._last = torch.tensor([between])
        room = length - 2 - middle - question_length
        if room < stride:
            raise ValueError(
                f"squad: length={length} leaves {max(room, 0)} tokens for the text beside "
                f"question_length={question_length}; stride={stride} would skip some: "
                "make length larger, or the other two smaller"
            )

    def windows(self, question: int, count: int, asked: int) -> list[Window]:
        """All windows of a question of `asked` tokens on a text of `count`."""
        room = self.length - self.size(asked, 0)
        found, low = [], 0
        while True:
            found.append(Window(question, low, min(low + room, count)))
            if low + room >= count:
                return found
            low += self.stride

    def size(self, asked: int, part: int) -> int:
        """Tokens of a row with `part` of a text and a question of `asked` tokens."""
        return 2 + len(self._middle) + min(asked, self.question_length) + part

    def question(self, tokens: Tensor) -> Tensor:
        """What stands before the text: first mark, question, the mark or marks in the middle."""
        kept = tokens[: self.question_length].long()
        return torch.cat((self._first, kept, self._middle))

    def row(self, before: Tensor, part: Tensor) -> Tensor:
        """The whole row."""
        return torch.cat((before, part.long(), self._last))


class Windows(Sequence[Window]):
    """All windows of all questions of a split."""

    def __init__(self, reader: Reader, source: Questions, tokens: Tokens) -> None:
        self.reader = reader
        self.source = source
        self.tokens = tokens
        self._windows: list[Window] = []
        self._first: list[int] = []
        counts = [len(tokens.contexts[n]) for n in range(len(tokens.contexts))]
        for number, question in enumerate(source.questions):
            self._first.append(len(self._windows))
            asked = len(tokens.questions[number])
            self._windows += reader.windows(number, counts[question.context], asked)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: Any) -> Any:
        return self._windows[index]

    def lengths(self) -> list[int]:
        """Tokens of each."""
        return [
            self.reader.size(len(self.tokens.questions[own.question]), own.high - own.low)
            for own in self._windows
        ]

    def question_of(self, number: int) -> Question:
        """The question of a window."""
        return self.source.questions[self._windows[number].question]

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Rows of these windows; the question is of type 0 and most often global, the text of type
        1.
        """
        rows, types, seen, allowed, starts, ends = [], [], [], [], [], []
        for number in numbers:
            window = self._windows[number]
            question = self.source.questions[window.question]
            before = self.reader.question(self.tokens.questions[window.question])
            part = self.tokens.contexts[question.context][window.low : window.high]
            row = self.reader.row(before, part)
            place = torch.arange(len(row))
            rows.append(row)
            types.append((place >= len(before)).long())
            seen.append(place < len(before))
            allowed.append((place == 0) | (place >= len(before)) & (place < len(row) - 1))
            start, end = self._target(window, question, len(before))
            starts.append(start)
            ends.append(end)
        return Batch(
            tokens=padded(rows, self.reader.pad),
            real=real_of(rows),
            types=padded(types, 0),
            global_tokens=padded(seen, False) if self.reader.global_tokens else None,
            targets={
                "start": torch.tensor(starts),
                "end": torch.tensor(ends),
                "allowed": padded(allowed, False),
            },
            numbers=list(numbers),
        )

    def characters(self, number: int) -> list[tuple[int, int] | None]:
        """For each token of a window's row the characters of its text, from and to before; None for
        the question and for marks.
        """
        window = self._windows[number]
        context = self.source.questions[window.question].context
        before = len(self.reader.question(self.tokens.questions[window.question]))
        begins = self.tokens.begins[context][window.low : window.high].tolist()
        ends = self.tokens.ends[context][window.low : window.high].tolist()
        return [*[None] * before, *zip(begins, ends, strict=True), None]

    def answers(self, outputs: Mapping[int, Any]) -> dict[int, Found]:
        """For each question that has a window among the outputs, the best span of all of them."""
        grouped: dict[int, list[int]] = {}
        for number in sorted(outputs):
            grouped.setdefault(self._windows[number].question, []).append(number)
        return {
            question: self._answer(question, numbers, outputs)
            for question, numbers in grouped.items()
        }

    def predictions(self, outputs: Mapping[int, Any]) -> list[dict[str, Any]]:
        """The answer to each question, of windows that all have an output."""
        names = ("text", "start", "end", "score", "absent")
        found = self.answers(outputs)
        return [
            {name: getattr(found[number], name) for name in names}
            for number in range(len(self.source.questions))
        ]

    def _answer(self, number: int, windows: list[int], outputs: Mapping[int, Any]) -> Found:
        context = self.source.questions[number].context
        shift = len(self.reader.question(self.tokens.questions[number]))
        best, absent = NOTHING, float("inf")
        for name in windows:
            low, high = self._windows[name].low, self._windows[name].high
            spans = outputs[name]
            # Where "no answer" is not among the best spans, it is at most as good as the last.
            nothing = next((s for b, e, s in spans if b == e == 0), spans[-1][2] if spans else 0.0)
            absent = min(absent, nothing)
            for begin, end, score in spans:
                first, last = begin - shift + low, end - shift + low
                if not low <= first <= last < high or (best.text and score <= best.score):
                    continue
                start = int(self.tokens.begins[context][first])
                stop = int(self.tokens.ends[context][last])
                text = self.source.contexts[context][start:stop]
                best = Found(text, start, stop, score, 0.0, name, begin, end)
        return best._replace(absent=absent - best.score) if best.text else best

    def _target(self, window: Window, question: Question, shift: int) -> tuple[int, int]:
        """The first and last token of an answer in a row; 0 and 0 where it is not there."""
        if not question.answerable:
            return 0, 0
        placed = [answer for answer in question.answers if answer.start is not None]
        if not placed:
            return NOT_COUNTED, NOT_COUNTED
        begins = self.tokens.begins[question.context]
        ends = self.tokens.ends[question.context]
        for answer in placed:
            begin = answer.start or 0
            # The first token that ends after its begin, the last that begins before its end.
            first = int(torch.searchsorted(ends, begin, right=True))
            last = int(torch.searchsorted(begins, begin + len(answer.text))) - 1
            if window.low <= first <= last < window.high:
                return first - window.low + shift, last - window.low + shift
        return 0, 0


def write_tokens(folder: Path, tokenizer: Any, source: Questions) -> None:
    """Tokenises all texts, each once, into files that `Tokens.read` maps."""
    with RaggedWriter(folder, "questions") as questions:
        asked = [question.text for question in source.questions]
        for found in encoded(tokenizer, asked, "tokenising questions"):
            questions.add(found.ids)
    with (
        RaggedWriter(folder, "contexts") as contexts,
        RaggedWriter(folder, "begins") as begins,
        RaggedWriter(folder, "ends") as ends,
    ):
        for found in encoded(tokenizer, source.contexts, "tokenising texts"):
            contexts.add(found.ids)
            begins.add([begin for begin, _ in found.offsets])
            ends.add([end for _, end in found.offsets])


def tokens_in_memory(tokenizer: Any, source: Questions) -> Tokens:
    """The same without files, for a few questions that someone asks."""
    asked = [question.text for question in source.questions]
    questions = [torch.tensor(f.ids) for f in encoded(tokenizer, asked, "tokenising questions")]
    texts = list(encoded(tokenizer, source.contexts, "tokenising texts"))
    return Tokens(
        questions,
        [torch.tensor(found.ids, dtype=torch.int32) for found in texts],
        [torch.tensor([o[0] for o in found.offsets], dtype=torch.int32) for found in texts],
        [torch.tensor([o[1] for o in found.offsets], dtype=torch.int32) for found in texts],
    )
