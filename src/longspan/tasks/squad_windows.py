"""Questions and the texts they are about as rows of tokens, and answers found in these rows."""

from __future__ import annotations

import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import need_bool, need_int
from .batch import NOT_COUNTED, Batch
from .cutting import say_cut
from .squad_files import Question, Questions
from .token_files import Ragged, RaggedWriter
from .tokenizing import encoded, special_token

__all__ = ["Found", "RowShape", "Window", "Windows", "tokens_in_memory", "write_tokens"]


class Tokens(NamedTuple):
    """Texts as tokens.

    Attributes:
        questions: tokens of each question.
        contexts: tokens of each text.
        begins: the first character of each of these.
        ends: after their last character.
    """

    questions: Ragged
    contexts: Ragged
    begins: Ragged
    ends: Ragged

    @classmethod
    def read(cls, folder: Path) -> Tokens:
        """Those that `write_tokens` wrote."""
        return cls(*(Ragged.read(folder, name) for name in cls._fields))


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


class RowShape:
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
        self.first, self.between, self.middle = first, between, middle
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
        return self.before(asked) + part + 1

    def before(self, asked: int) -> int:
        """Tokens that stand before the text: the first mark, the question, and what is between."""
        return 1 + min(asked, self.question_length) + self.middle


class Windows(Sequence[Window]):
    """All windows of all questions of a split.

    Args:
        empty: of the windows on a text in which a question's answer is not, so many are there, the
            same every time; None for all.
    """

    def __init__(
        self, shape: RowShape, source: Questions, tokens: Tokens, *, empty: int | None = None
    ) -> None:
        self.shape = shape
        self.source = source
        self.tokens = tokens
        self._windows: list[Window] = []
        counts, asked = tokens.contexts.lengths().tolist(), tokens.questions.lengths().tolist()
        most = shape.question_length
        say_cut("squad", "questions", asked, most, f"question_length={most}")
        spans = None if empty is None else self._spans()
        for number, question in enumerate(source.questions):
            found = shape.windows(number, counts[question.context], asked[number])
            if spans is not None and empty is not None:
                found = _fewer(found, spans[number], empty)
            self._windows += found
        self._table = np.array(self._windows, dtype=np.int64).reshape(-1, 3)
        self._asked = np.minimum(asked, shape.question_length)
        self._context = np.array([question.context for question in source.questions])
        self._begins = tokens.questions.begins().numpy(), tokens.contexts.begins().numpy()
        self._targets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: Any) -> Any:
        return self._windows[index]

    def lengths(self) -> list[int]:
        """Tokens of each."""
        question, low, high = self._table.T
        found: list[int] = (self._asked[question] + high - low + self.shape.size(0, 0)).tolist()
        return found

    def question_of(self, number: int) -> Question:
        """The question of a window."""
        return self.source.questions[self._windows[number].question]

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Rows of these windows; the question is of type 0 and most often global, the text of type
        1.
        """
        # By NumPy: the first of torch's threads would wait for the others in operations this small.
        chosen = np.asarray(numbers, dtype=np.int64)
        question, low, high = self._table[chosen].T
        asked = self._asked[question][:, None]
        before = asked + self.shape.before(0)
        size = before + (high - low)[:, None] + 1
        place = np.arange(size.max())
        real, in_question = place < size, (place > 0) & (place <= asked)
        in_text = (place >= before) & (place < size - 1)
        tokens = np.where(real, self.shape.between, self.shape.pad)
        tokens[:, 0] = self.shape.first
        of_questions, of_contexts = self._begins
        at = of_questions[question][:, None] + place - 1
        tokens[in_question] = self.tokens.questions.values.numpy()[at[in_question]]
        at = (of_contexts[self._context[question]] + low)[:, None] + place - before
        tokens[in_text] = self.tokens.contexts.values.numpy()[at[in_text]]
        start, end = self._all_targets()[chosen].T
        return Batch(
            tokens=torch.from_numpy(tokens),
            real=torch.from_numpy(real),
            types=torch.from_numpy(((place >= before) & real).astype(np.int64)),
            global_tokens=torch.from_numpy(place < before) if self.shape.global_tokens else None,
            targets={
                "start": torch.from_numpy(start.copy()),
                "end": torch.from_numpy(end.copy()),
                "allowed": torch.from_numpy((place == 0) | in_text),
            },
            numbers=list(numbers),
        )

    def characters(self, number: int) -> list[tuple[int, int] | None]:
        """For each token of a window's row the characters of its text, from and to before; None for
        the question and for marks.
        """
        window = self._windows[number]
        context = self.source.questions[window.question].context
        before = self.shape.before(len(self.tokens.questions[window.question]))
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

    def _answer(self, number: int, windows: list[int], outputs: Mapping[int, Any]) -> Found:
        context = self.source.questions[number].context
        shift = self.shape.before(len(self.tokens.questions[number]))
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

    def _spans(self) -> list[list[tuple[int, int]] | None]:
        """For each question the first and last token of its answers in its text: none where it has
        no answer; None where nobody knows where they are.
        """
        edges: dict[int, tuple[list[int], list[int]]] = {}
        found: list[list[tuple[int, int]] | None] = []
        for question in self.source.questions:
            placed = [answer for answer in question.answers if answer.start is not None]
            if not question.answerable or not placed:
                found.append(None if question.answerable else [])
                continue
            number = question.context
            if number not in edges:
                edges[number] = (
                    self.tokens.begins[number].tolist(), self.tokens.ends[number].tolist()
                )  # fmt: skip
            begins, ends = edges[number]
            # The first token that ends after an answer's begin, the last that begins before its
            # end.
            found.append(
                [
                    (
                        bisect_right(ends, answer.start or 0),
                        bisect_left(begins, (answer.start or 0) + len(answer.text)) - 1,
                    )
                    for answer in placed
                ]
            )
        return found

    def _all_targets(self) -> np.ndarray:
        """The first and last token of an answer in each window's row, `(windows, 2)`; 0 and 0 where
        it is not there.
        """
        if self._targets is None:
            spans = self._spans()
            found = []
            for window in self._windows:
                own = spans[window.question]
                inside = None if own is None else _inside(window, own)
                if inside is None:
                    found.append((0, 0) if own is not None else (NOT_COUNTED, NOT_COUNTED))
                    continue
                asked = len(self.tokens.questions[window.question])
                shift = self.shape.before(asked) - window.low
                found.append((inside[0] + shift, inside[1] + shift))
            self._targets = np.array(found, dtype=np.int64).reshape(-1, 2)
        return self._targets


def _inside(window: Window, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first of the spans that a window has whole."""
    for first, last in spans:
        if window.low <= first <= last < window.high:
            return first, last
    return None


def _fewer(
    windows: list[Window], spans: Sequence[tuple[int, int]] | None, empty: int
) -> list[Window]:
    """Those with an answer, and so many of the others, drawn by the question's number."""
    there = [own for own in windows if spans is None or _inside(own, spans) is not None]
    others = [own for own in windows if own not in there]
    # A question without an answer has no other windows.
    count = max(empty, 1) if not there else empty
    drawn = random.Random(windows[0].question).sample(others, min(count, len(others)))
    return sorted([*there, *drawn], key=lambda own: own.low)


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
    questions = [f.ids for f in encoded(tokenizer, asked, "tokenising questions")]
    texts = list(encoded(tokenizer, source.contexts, "tokenising texts"))
    return Tokens(
        Ragged.of(questions),
        Ragged.of([found.ids for found in texts]),
        Ragged.of([[begin for begin, _ in found.offsets] for found in texts]),
        Ragged.of([[end for _, end in found.offsets] for found in texts]),
    )
