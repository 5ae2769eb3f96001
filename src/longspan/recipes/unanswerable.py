"""Questions that the text does not answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..training.config import Precision
from .plan import Plan, over_seeds
from .questions import answering, fixed, full, reaching

__all__ = ["unanswerable"]


def unanswerable(
    *,
    data: str | Sequence[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    no_answer: float | Literal["chosen"] = "chosen",
    mismatched: float = 0.5,
    removed: float = 0.0,
    reach: int = 16,
    steps: int = 1400,
    batch: int = 64,
    length: int = 384,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """Full attention, a fixed and a learned window, with the question's tokens as global ones,
    trained to say where the answer is or that there is none.

    How much better "no answer" has to score than a span is chosen by every run for itself, on
    articles that are kept from `data` and not learned from; `dev` has no part in it.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: weights to start from, with their tokenizer.
        no_answer: how much better "no answer" must score than the best span, if it is not chosen.
        mismatched: the share of questions that are asked about a wrong paragraph, too.
        removed: the share that is asked about their own paragraph without the answer's sentence.
        reach: tokens to each side, on average.
        steps: of training.
        batch: examples at once.
        length: tokens of an example.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    # Records of runs that were made before there was such a setting are without it.
    own = {"removed": removed} if removed else {}
    base = answering(
        data=data, dev=dev, start=start, steps=steps, batch=batch, length=length,
        learning_rate=learning_rate, precision=precision, mismatched=mismatched,
        no_answer=no_answer, **own,
    )  # fmt: skip
    rows = {
        "full attention": full(base),
        f"fixed {reach}": fixed(base, reach),
        f"learned {reach}": reaching(base, reach),
    }
    return Plan(
        title="Questions without an answer",
        about="Questions about paragraphs that may not answer them, F1; saying so is right where "
        f"that is so. Windows of {reach} tokens to each side, fixed or on average.",
        runs=tuple(run for row, config in rows.items() for run in over_seeds(row, config, seeds)),
    )
