"""Whole articles: what each mechanism finds in them with as many pairs, and what of it matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig
from ..training.config import Precision
from .plan import Plan, over_seeds
from .questions import (
    answering,
    fixed,
    full,
    paragraphs_first,
    reaching,
    wide_first,
    with_settings,
    with_tokens,
)

__all__ = ["long_documents"]

WIDE_FIRST = "learned, wide first"

# As many times the steps on articles, for full attention.
MORE = 4

# An eighth of it has room for a question and some text.
SHORTEST = 1024


def long_documents(
    *,
    data: str | Sequence[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    reach: int = 40,
    length: int = 4096,
    paragraphs: int = 1400,
    short_batch: int = 64,
    steps: int = 450,
    batch: int = 16,
    dev_questions: int | None = None,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """Full attention, and mechanisms of the same pairs, each with the question's tokens as global
    ones; then what happens without those, without projections of their own, where an article is
    read through shorter windows, where learned windows are wide on paragraphs, and where full
    attention has more steps on articles: of those it needs the most.

    Every row learns from paragraphs first, and then from whole articles.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: weights to start from, with their tokenizer; their positions are lengthened.
        reach: tokens to each side, on average.
        length: tokens of an example, at least 1,024.
        paragraphs: steps of training on paragraphs; 0 for articles alone.
        short_batch: examples at once there.
        steps: of training on articles.
        batch: examples at once there; shorter ones are as many more.
        dev_questions: so many questions to be measured on; None for all.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    if length < SHORTEST:
        raise ValueError(
            f"long_documents: length must be at least {SHORTEST:,}, of which one row reads an "
            f"eighth at a time, got {length}"
        )
    base = answering(
        data=data, dev=dev, start=start, steps=steps, batch=batch, length=length,
        learning_rate=learning_rate, precision=precision, by="article", empty=1,
        dev_questions=dev_questions,
    )  # fmt: skip

    def whole(row: str, config: RunConfig) -> RunConfig:
        if row != WIDE_FIRST:
            return paragraphs_first(config, steps=paragraphs, batch=short_batch)
        if not paragraphs:
            return wide_first(config)
        wide = {"mean_reach": 4 * reach}
        return paragraphs_first(config, steps=paragraphs, batch=short_batch, mechanism=wide)

    return Plan(
        title="Whole articles",
        about=f"Questions about whole articles, F1, in rows of {length:,} tokens. Windows of "
        f"{reach} tokens to each side, fixed or on average, and patterns of as many pairs.",
        runs=tuple(
            run
            for row, config in _rows(base, reach, length)
            for run in over_seeds(row, whole(row, config), seeds)
        ),
    )


def _rows(base: RunConfig, reach: int, length: int) -> Iterator[tuple[str, RunConfig]]:
    def windows(config: RunConfig) -> RunConfig:
        return fixed(config, reach, global_projections=True)

    def learning(config: RunConfig) -> RunConfig:
        return reaching(config, reach, global_projections=True)

    yield "full attention", full(base)
    yield "fixed", windows(base)
    yield "dilated", fixed(base, reach, dilation=2, global_projections=True)
    yield "BigBird", replace(base, mechanism=_bigbird(reach))
    yield "learned", learning(base)
    bare = with_tokens(base, False)
    yield "fixed, no global tokens", fixed(bare, reach)
    yield "learned, no global tokens", reaching(bare, reach)
    yield "fixed, no projections for global tokens", fixed(base, reach)
    yield "learned, no projections for global tokens", reaching(base, reach)
    for shorter in (length // 8, length // 2):
        own = _shorter(base, shorter, length // shorter)
        if shorter == length // 8:
            yield f"full attention, {shorter} tokens", full(own)
        yield f"fixed, {shorter} tokens", windows(own)
        yield f"learned, {shorter} tokens", learning(own)
    yield WIDE_FIRST, learning(base)
    (articles,) = base.stages
    longer = replace(articles, steps=MORE * articles.steps)
    yield f"full attention, {MORE} times the steps", full(replace(base, stages=(longer,)))


def _bigbird(reach: int) -> dict[str, Any]:
    """Five blocks for a token, two of them drawn: as many keys as a window has."""
    return {
        "kind": "BigBird", "tokens": "extra", "block": max((2 * reach + 1) // 5, 1), "window": 3,
        "drawn": 2,
    }  # fmt: skip


def _shorter(config: RunConfig, length: int, more: int) -> RunConfig:
    """Articles read through shorter windows, as many more at once."""
    stages = tuple(replace(own, batch=own.batch * more) for own in config.stages)
    return replace(with_settings(config, length=length), stages=stages)
