"""Questions whose answers are spans of a text, in SQuAD's form or one's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..errors import describe, need_int, need_number
from .batch import Batch
from .reading import path_of, source_of, splits_of
from .sample import sample
from .squad_files import QUESTION_KINDS, Question, Questions, read_questions
from .squad_metric import best_threshold, exact_match, f1, normalized
from .squad_reader import SquadReader
from .squad_unanswered import Unanswered, with_unanswered
from .squad_windows import Found, RowShape, Tokens, Windows, write_tokens
from .text_task import TextTask
from .token_files import cached, hash_of
from .tokenizing import tokenizer_of

__all__ = ["Squad"]

# What to do where a file has no tenth that could be kept from what is learned.
TO_MEASURE = "name a file to be measured on with dev=…"
TO_CHOOSE = "there is none to choose no_answer by; give it as a number"


class Squad(TextTask):
    """Find the answer to a question in a text.

    A row is `[CLS] question [SEP] text [SEP]`; the tokens of the question with the marks around it
    are global. A text that is longer than a row is read through windows that overlap, and the
    answer is the best span of them all. Measures are F1 and exact match in percent, as SQuAD's own
    scripts give them.

    Args:
        data: a file, several in a list, or a folder with one for training (`train…`) and one to be
            measured on (`dev…`, `val…` or `test…`). A file is SQuAD's JSON (1.1, 2.0,
            SQuADShifts); JSONL, CSV or TSV with `question`, `context` and `answer`; or JSONL with
            `text` and `clauses`, such as contracts; plain, .gz or .xz. None for a few articles of
            SQuAD that ship with longspan.
        dev: the file to be measured on; without any, a tenth of the articles of every file is
            kept for that, the last ones.
        by: a text is a `"paragraph"`, or a whole `"article"`: its paragraphs, joined.
        length: the most tokens of a row.
        stride: from the begin of a window on a text to the begin of the next; None for half of
            `length`, or all the room that is left beside the question.
        question_length: the most tokens of a question.
        global_tokens: whether the tokens of the question, with the marks around it, are global.
        tokenizer: a `tokenizer.json`, or a folder that has one, such as that of a Hugging Face
            checkpoint; None to learn one from the texts to learn from.
        vocabulary: the most tokens of one that is learned.
        empty: of the windows on a text that do not have a question's answer, so many are learned
            from; None for all, which on long texts are nearly all there is.
        mismatched: a share of the questions to learn from, and to be measured on where no `dev` is
            named, is asked a second time about another paragraph of the same article, one without
            the answer. So a model can learn from SQuAD 1.1 that a text may not tell.
        removed: a share of them likewise about their own paragraph, without the sentences in which
            an answer stands: what is left is about the same, as questions that SQuAD 2.0 does not
            answer are.
        dev_questions: so many of those to be measured on, spread evenly; None for all.
        no_answer: how much better "no answer" must score than the best span to be given, where
            questions may have none; or `"chosen"`: what is best for the model, on a tenth of the
            articles of every file to learn from, the last ones, which are then not learned from.
        cache: the folder for tokens; `~/.cache/longspan` by default.

    Attributes:
        misplaced: ids of questions with an answer that is not where the file says, or, in a file
            of one's own, not in the text. They are not learned from.
    """

    name = "squad"
    reader = SquadReader
    objective = "spans"
    metric = "f1"
    also = ("exact_match",)

    def __init__(
        self,
        data: str | Path | Sequence[str | Path] | None = None,
        *,
        dev: str | Path | None = None,
        by: Literal["paragraph", "article"] = "paragraph",
        length: int = 384,
        stride: int | None = None,
        question_length: int = 64,
        global_tokens: bool = True,
        tokenizer: str | Path | None = None,
        vocabulary: int = 8000,
        empty: int | None = None,
        mismatched: float = 0.0,
        removed: float = 0.0,
        dev_questions: int | None = None,
        no_answer: float | Literal["chosen"] = 0.0,
        cache: str | Path | None = None,
    ) -> None:
        if by not in ("paragraph", "article"):
            raise ValueError(f"squad: by must be 'paragraph' or 'article', got {describe(by)}")
        need_int("squad: vocabulary", vocabulary, at_least=1)
        _check_no_answer(no_answer)
        if empty is not None:
            need_int("squad: empty", empty, at_least=0)
        if dev_questions is not None:
            need_int("squad: dev_questions", dev_questions, at_least=1)
        _check_shares(mismatched, removed, by)
        if stride is None:
            stride = max(1, min(length // 2, length - question_length - 4))
        self.settings = {
            "dev": None if dev is None else str(dev),
            "by": by,
            "length": length,
            "stride": stride,
            "question_length": question_length,
            "global_tokens": global_tokens,
            "tokenizer": None if tokenizer is None else str(tokenizer),
            "vocabulary": vocabulary,
            "empty": empty,
            "mismatched": mismatched,
            "removed": removed,
            "dev_questions": dev_questions,
            "no_answer": no_answer,
        }
        shares = Unanswered(mismatched, removed)
        learn, measure, held = self._read(data, dev, by, shares, held=no_answer == "chosen")
        if dev_questions is not None:
            measure = _spread(measure, dev_questions)
        self.data = _as_text(data)
        self.no_answer = 0.0 if isinstance(no_answer, str) else float(no_answer)
        self.length = length
        texts = [*learn.contexts, *(question.text for question in learn.questions)]
        self._use(tokenizer_of(tokenizer, texts, vocabulary, cache=cache))
        self._shape = RowShape(
            self.tokenizer, length, stride, question_length, global_tokens=global_tokens
        )
        self.most_global = self._shape.size(question_length, 0) if global_tokens else 0
        self.train = self._windows("train", _learnable(learn), cache, empty)
        self.dev = self._windows("dev", measure, cache)
        self.held = None if held is None else self._windows("held", held, cache)

    @classmethod
    def measured_on(
        cls, description: Mapping[str, Any], dev: str | Path, saved: Path
    ) -> dict[str, Any]:
        """The description of a task that is measured on all questions of another file."""
        other = super().measured_on(description, dev, saved)
        return {**other, "settings": {**other["settings"], "dev_questions": None}}

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Windows of these numbers."""
        return self._split(split).batch(numbers)

    def lengths(self, split: str = "train") -> Sequence[int]:
        """Tokens of the windows."""
        return self._split(split).lengths()

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """F1 and exact match over the questions that have a window among the outputs.

        Where questions may have no answer, also F1 and exact match of those that have one, how
        often those that have none were left unanswered, and the best F1 that any `no_answer`
        gives, with that value.
        """
        windows = self._split(split)
        found = windows.answers(outputs)
        two = windows.source.unanswerable
        questions = {n: windows.source.questions[n] for n in found}
        exact, overlap = {}, {}
        for number, question in questions.items():
            text = self._given(found[number], two)
            answers = _right(question, two)
            exact[number] = exact_match(text, answers)
            overlap[number] = f1(text, answers, unanswerable=two)
        scores = {
            "f1": _percent(overlap.values()),
            "exact_match": _percent(exact.values()),
            "questions": float(len(questions)),
        }
        if two:
            scores |= _of_answerable(questions, found, exact, overlap)
        return scores

    def choose(self, outputs: Mapping[int, Any]) -> dict[str, float]:
        """The `no_answer` with the best F1."""
        return {"no_answer": self.score(outputs, "held")["best_no_answer"]}

    def take(self, chosen: Mapping[str, float]) -> None:
        self.no_answer = float(chosen["no_answer"])

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each question what was answered, where that lies, and the right answers."""
        windows = self._split(split)
        return [
            {
                "id": question.id,
                "question": question.text,
                "answer": self._given(own, windows.source.unanswerable),
                "start": own.start,
                "end": own.end,
                "score": own.score,
                "no_answer": own.absent,
                "answers": [answer.text for answer in question.answers],
            }
            for question, own in self._by_question(windows, outputs)
        ]

    def prediction_file(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, str]:
        """What SQuAD's scripts read: for each question's id the answer."""
        windows = self._split(split)
        return {
            question.id: self._given(own, windows.source.unanswerable)
            for question, own in self._by_question(windows, outputs)
        }

    @property
    def unanswerable(self) -> bool:
        """Whether some questions of the data have no answer, so that a model learns to say so."""
        return any(self._split(split).source.unanswerable for split in ("train", "dev"))

    @property
    def input_reader(self) -> SquadReader:
        return SquadReader(
            self.tokenizer,
            length=self.length,
            stride=self.settings["stride"],
            question_length=self.settings["question_length"],
            global_tokens=self.settings["global_tokens"],
            unanswerable=self.unanswerable,
            no_answer=self.no_answer,
        )

    def _split(self, split: str) -> Windows:
        found = self.examples(split)
        assert isinstance(found, Windows)
        return found

    def _given(self, found: Found, unanswerable: bool) -> str:
        return "" if unanswerable and found.absent > self.no_answer else found.text

    def _by_question(
        self, windows: Windows, outputs: Mapping[int, Any]
    ) -> list[tuple[Question, Found]]:
        found = windows.answers(outputs)
        return [(windows.source.questions[n], own) for n, own in found.items()]

    def _read(
        self,
        data: str | Path | Sequence[str | Path] | None,
        dev: str | Path | None,
        by: Literal["paragraph", "article"],
        shares: Unanswered,
        held: bool,
    ) -> tuple[Questions, Questions, Questions | None]:
        """What to learn from, what to be measured on, and if asked for what is held for a choice;
        notes what was read.
        """
        files, other = _files(data, dev)
        self.files = [source_of(path) for path in (*files, other) if path is not None]
        found = [read_questions(path, by) for path in files]
        kept: Questions | None = None
        if other is not None:
            measure = read_questions(other, by)
            if data is None and dev is None:
                measure = with_unanswered(measure, shares)
        else:
            found, measure = _parted(found, files, shares, TO_MEASURE)
        if held:
            found, kept = _parted(found, files, shares, TO_CHOOSE)
            _check_kept(kept)
        learn = with_unanswered(Questions.joined(found), shares)
        _check_made(learn, shares)
        parts = [learn, measure] if kept is None else [learn, measure, kept]
        self.misplaced = [name for part in parts for name in part.misplaced]
        if self.misplaced:
            count = sum(len(q.answers) for part in parts for q in part.questions)
            warnings.warn(
                f"squad: {len(self.misplaced)} of {count} answers are not where the data says "
                f"(the first is that of question {self.misplaced[0]!r}); they are not learned from",
                stacklevel=4,
            )
        several = [name for part in parts for name in part.several]
        if several:
            warnings.warn(
                f"squad: {len(several)} answers stand at several places in their text, of which "
                f"the first is taken (one is that of question {several[0]!r}); answer_start says "
                "which is meant",
                stacklevel=4,
            )
        return learn, measure, kept

    def _windows(
        self,
        split: str,
        source: Questions,
        cache: str | Path | None,
        empty: int | None = None,
    ) -> Windows:
        key = {
            "contexts": hash_of(source.contexts),
            "questions": hash_of([question.text for question in source.questions]),
            "tokenizer": hash_of([self.tokenizer.to_str()]),
        }
        folder = cached(
            f"squad-{split}",
            key,
            lambda folder: write_tokens(folder, self.tokenizer, source),
            cache=cache,
        )
        return Windows(self._shape, source, Tokens.read(folder), empty=empty)


def _files(
    data: str | Path | Sequence[str | Path] | None, dev: str | Path | None
) -> tuple[list[Path], Path | None]:
    """The files to learn from, and the one to be measured on."""
    other = path_of("squad: dev", dev) if dev is not None else None
    if data is None:
        return [sample("squad_train.json.xz")], other or sample("squad_dev.json.xz")
    if isinstance(data, Sequence) and not isinstance(data, str):
        if not data:
            raise ValueError("squad: data must have at least one file, got an empty list")
        return [path_of("squad: data", path) for path in data], other
    paths = splits_of(path_of("squad: data", data), other, QUESTION_KINDS)
    return [paths.train], paths.dev


def _as_text(data: str | Path | Sequence[str | Path] | None) -> str | list[str] | None:
    if data is None or isinstance(data, str | Path):
        return None if data is None else str(data)
    return [str(path) for path in data]


def _learnable(questions: Questions) -> Questions:
    """Without the questions whose answers are all misplaced: nothing can be learned from them."""
    kept = [
        question
        for question in questions.questions
        if not question.answerable or any(answer.start is not None for answer in question.answers)
    ]
    if not kept:
        raise ValueError("squad: no question to learn from has an answer that is in its text")
    return replace(questions, questions=kept)


def _check_no_answer(value: Any) -> None:
    if not isinstance(value, str):
        need_number("squad: no_answer", value)
    elif value != "chosen":
        raise ValueError(f"squad: no_answer must be a number or 'chosen', got {describe(value)}")


def _check_kept(kept: Questions) -> None:
    """Raises unless both kinds of questions are there to choose by."""
    for answerable, what in ((True, "with"), (False, "without")):
        if not any(question.answerable == answerable for question in kept.questions):
            raise ValueError(
                f"squad: no_answer='chosen' needs questions {what} an answer in the last tenth of "
                "the articles to learn from, and there are none; mismatched=0.5 or removed=0.5 "
                "asks questions of SQuAD 1.1 about texts without the answer"
            )


def _check_shares(mismatched: float, removed: float, by: str) -> None:
    for name, share in (("mismatched", mismatched), ("removed", removed)):
        need_number(f"squad: {name}", share)
        if not 0 <= share <= 1:
            raise ValueError(f"squad: {name} must be a share, from 0 to 1, got {share}")
        if share and by == "article":
            raise ValueError(
                f"squad: {name} questions are asked about a paragraph without their answer: give "
                "by='paragraph'"
            )


def _check_made(questions: Questions, shares: Unanswered) -> None:
    """Raises when a share of the questions was asked for and none could be made: nobody would see
    it.
    """
    for name, share in zip(shares._fields, shares, strict=True):
        if share and not any(question.id.endswith(f"-{name}") for question in questions.questions):
            needs = {
                "mismatched": "articles of several paragraphs (SQuAD's JSON has them)",
                "removed": "texts of several sentences",
            }
            raise ValueError(
                f"squad: {name}={share} makes no question of the data, which needs {needs[name]}, "
                "and answerable questions enough for that share; leave it out"
            )


def _spread(questions: Questions, count: int) -> Questions:
    """So many of the questions, evenly."""
    there = len(questions.questions)
    kept = (
        [questions.questions[n * there // count] for n in range(count)] if count < there else None
    )
    return questions if kept is None else replace(questions, questions=kept)


def _parted(
    found: Sequence[Questions], files: Sequence[Path], shares: Unanswered, cure: str
) -> tuple[list[Questions], Questions]:
    """Of every file all but the last tenth of its articles; and these together. `cure` says what to
    do where there is no such tenth.
    """
    parts = [_apart(own, path, cure) for own, path in zip(found, files, strict=True)]
    last = Questions.joined([own for _, own in parts])
    return [own for own, _ in parts], with_unanswered(last, shares)


def _apart(questions: Questions, path: Path, cure: str) -> tuple[Questions, Questions]:
    """All but the last tenth of the articles, and these."""
    groups = sorted(set(questions.groups))
    count = max(1, len(groups) // 10)
    if len(groups) < 2:
        raise ValueError(f"{path} has one text alone: {cure}")
    learn, measure = questions.part(set(groups[:-count])), questions.part(set(groups[-count:]))
    for part, name in ((learn, "first"), (measure, "last")):
        if not part.questions:
            raise ValueError(f"{path}: its {name} texts have no questions: {cure}")
    return learn, measure


def _right(question: Question, unanswerable: bool) -> list[str]:
    """The texts that an answer is compared with. The script of 2.0 leaves out those without words,
    and has an empty one where nothing is left.
    """
    texts = [answer.text for answer in question.answers]
    if unanswerable:
        texts = [text for text in texts if normalized(text)]
    return texts or [""]


def _of_answerable(
    questions: Mapping[int, Question],
    found: Mapping[int, Found],
    exact: Mapping[int, float],
    overlap: Mapping[int, float],
) -> dict[str, float]:
    """What SQuAD 2.0 also reports."""
    scores = {}
    having = [n for n, question in questions.items() if question.answerable]
    lacking = [n for n, question in questions.items() if not question.answerable]
    if having:
        scores["has_answer_f1"] = _percent([overlap[n] for n in having])
        scores["has_answer_exact_match"] = _percent([exact[n] for n in having])
    if lacking:
        scores["no_answer_accuracy"] = _percent([exact[n] for n in lacking])
    spans = {
        str(n): f1(found[n].text, _right(question, True), unanswerable=True)
        for n, question in questions.items()
    }
    best = best_threshold(
        spans,
        {str(n): found[n].absent for n in questions},
        {str(n): question.answerable for n, question in questions.items()},
    )
    return scores | {"best_f1": best.score, "best_no_answer": best.value}


def _percent(values: Any) -> float:
    values = list(values)
    return 100 * sum(values) / len(values)
