"""Longer texts than a model has learned: what it answers about them with full attention, and with a
window put under it, without any training on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import need_int
from ..training.config import Precision
from ..training.starting import is_run
from .plan import Plan, Planned, over_seeds
from .questions import answering

__all__ = ["longer_texts"]


def longer_texts(
    *,
    data: str | Sequence[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    reach: int = 128,
    short: int = 384,
    lengths: Sequence[int] = (512, 1024, 2048, 4096),
    paragraphs: int = 1400,
    short_batch: int = 64,
    batch: int = 4,
    dev_questions: int | None = None,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0,),
) -> Plan:
    """A model that has learned from paragraphs with full attention reads whole articles, through
    rows of several lengths. Where these are longer than what it has learned, its positions go on
    with copies of themselves.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: a run whose model has learned from paragraphs; or weights to learn from them with,
            which every row then does.
        reach: tokens to each side of the window, whose global tokens are those of the question.
        short: tokens of a paragraph with its question, and of the shortest rows.
        lengths: tokens of the other rows.
        paragraphs: steps of training on paragraphs, where there is no run.
        short_batch: examples at once there.
        batch: rows that are measured at once.
        dev_questions: so many questions to be measured on; None for all.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    need_int("longer_texts: paragraphs", paragraphs, at_least=1)
    base = answering(
        data=data, dev=dev, start=start, steps=paragraphs, batch=short_batch, length=short,
        learning_rate=learning_rate, precision=precision, dev_questions=dev_questions,
    )  # fmt: skip
    (learning,) = base.stages
    learned = start is not None and is_run(start)
    rows: dict[str, dict[str, Any]] = {
        "full attention": {"kind": "FullAttention"},
        f"a window of {reach}": {
            "kind": "SlidingWindow", "left": reach, "global_projections": False,
        },
    }  # fmt: skip
    runs: list[Planned] = []
    for length in (short, *lengths):
        for row, mechanism in rows.items():
            measured = replace(
                learning, name="measured", steps=0, batch=batch, mechanism=mechanism,
                task={"settings": {"length": length, "by": "article"}},
            )  # fmt: skip
            stages = (measured,) if learned else (replace(learning, name="paragraphs"), measured)
            name = f"{length:,} tokens: {row}"
            runs += over_seeds(name, replace(base, stages=stages), seeds)
    return Plan(
        title="Longer texts than were learned",
        about="Questions about whole articles, F1, in rows of so many tokens, by a model that has "
        "learned from paragraphs alone, with full attention.",
        runs=tuple(runs),
    )
