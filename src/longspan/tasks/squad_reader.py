"""Questions that someone asks about texts, as a trained model reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .inputs import Inputs
from .squad_files import Question, Questions
from .squad_windows import Found, RowShape, Windows, tokens_in_memory
from .text_task import TextReader

__all__ = ["SquadReader"]


@dataclass(frozen=True)
class SquadReader(TextReader):
    """Windows on texts of any length, each beside a question.

    Attributes:
        length: the most tokens of a row.
        stride: from the begin of a window on a text to the begin of the next.
        question_length: the most tokens of a question.
        global_tokens: whether the question's are global.
        unanswerable: whether the model has learned that a text may not tell.
        no_answer: how much better "no answer" must then score than the best span.
    """

    length: int
    stride: int
    question_length: int
    global_tokens: bool
    unanswerable: bool
    no_answer: float

    reads = ("question", "context")
    documents = ("context",)

    def inputs(self, records: Sequence[Mapping[str, Any]]) -> Inputs:
        """Questions, each with the text to look in, which may be of any length."""
        windows = self.asked([(own["question"], own["context"]) for own in records])

        def predictions(outputs: Mapping[int, Any]) -> list[dict[str, Any]]:
            found = windows.answers(outputs)
            names = ("text", "start", "end", "score", "absent")
            return [
                {name: getattr(own, name) for name in names} | {"held": self.holds(own)}
                for own in (found[number] for number in range(len(records)))
            ]

        return Inputs(len(windows), windows.batch, predictions)

    def asked(self, questions: Sequence[tuple[str, str]]) -> Windows:
        """Windows of questions, each with the text to look in."""
        texts = list(dict.fromkeys(context for _, context in questions))
        source = Questions(contexts=texts, groups=list(range(len(texts))))
        for number, (text, context) in enumerate(questions):
            source.questions.append(Question(str(number), text, texts.index(context), (), False))
        return Windows(self._shape, source, tokens_in_memory(self.tokenizer, source))

    def holds(self, found: Found) -> bool:
        """Whether the text tells, as far as the model has learned to say."""
        refused = self.unanswerable and found.absent > self.no_answer
        return bool(found.text) and not refused

    @cached_property
    def _shape(self) -> RowShape:
        return RowShape(
            self.tokenizer,
            self.length,
            self.stride,
            self.question_length,
            global_tokens=self.global_tokens,
        )
