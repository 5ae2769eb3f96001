"""A strategy learned on short texts and used on long ones, beside one that was learned there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ..errors import need_int
from ..training import RunConfig, Stage
from ..training.config import Precision
from .plan import Plan, over_seeds
from .questions import (
    answering,
    fixed,
    on_paragraphs,
    paragraphs_first,
    reaching,
    with_settings,
)

__all__ = ["scales"]


def scales(
    *,
    data: str | Sequence[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    reach: int = 40,
    short: int = 384,
    short_steps: int = 1400,
    short_batch: int = 64,
    paragraphs: int = 1400,
    lengths: Sequence[int] = (4096, 16384),
    batches: Sequence[int] = (16, 8),
    steps: int = 600,
    dev_questions: int | None = None,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """At each length: a fixed window; a reach learned on paragraphs, whose network alone is carried
    over and frozen; a reach learned at that length, carried over in the same way; one that learns
    together with all the rest to the end; and the second with all that was learned on paragraphs
    kept. The time of a row is that of its stages together.

    Every model reads paragraphs before articles, and one that begins anew does so again.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: weights to start from, with their tokenizer; their positions are lengthened.
        reach: tokens to each side, on average.
        short: tokens of a paragraph with its question.
        short_steps: on paragraphs from which a reach is learned.
        short_batch: examples at once there.
        paragraphs: steps on paragraphs, with windows as they are on articles, before these; 0 for
            articles alone.
        lengths: tokens of an example in the long stages.
        batches: examples at once there, for each length: longer rows hold whole articles, most of
            which are shorter.
        steps: of a long stage.
        dev_questions: so many questions to be measured on; None for all.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    need_int("scales: steps", steps, at_least=1)
    need_int("scales: paragraphs", paragraphs, at_least=0)
    base = answering(
        data=data, dev=dev, start=start, steps=short_steps, batch=short_batch, length=short,
        learning_rate=learning_rate, precision=precision, dev_questions=dev_questions,
    )  # fmt: skip
    if len(set(lengths)) != len(lengths):
        raise ValueError(f"scales: lengths must be another for every stage, got {list(lengths)}")
    if len(batches) != len(lengths):
        raise ValueError(
            f"scales: batches must be one for each of the {len(lengths)} lengths, got "
            f"{len(batches)}"
        )
    runs = [
        run
        for length, batch in zip(lengths, batches, strict=True)
        for row, config in _rows(base, reach, length, steps, batch, paragraphs)
        for run in over_seeds(row, config, seeds)
    ]
    return Plan(
        title="From short texts to long ones",
        about=f"Questions about whole articles, F1, with a reach of {reach} tokens to each side on "
        "average, learned on paragraphs or on the articles themselves.",
        runs=tuple(runs),
    )


def _rows(
    base: RunConfig, reach: int, length: int, steps: int, batch: int, paragraphs: int
) -> Iterator[tuple[str, RunConfig]]:
    (short,), small = base.stages, base.task["settings"]["length"]
    large = replace(
        with_settings(base, length=length, by="article", empty=1),
        stages=(replace(short, name="articles", steps=steps, batch=batch),),
    )
    whole = partial(paragraphs_first, steps=paragraphs, batch=short.batch, length=small)
    first = (on_paragraphs(replace(short, name="short"), small),)
    own = reaching(large, reach)
    both = whole(own)
    yield f"{length:,}: fixed", whole(fixed(large, reach))
    yield f"{length:,}: learned on paragraphs", _carried_over(both, first)
    yield f"{length:,}: learned on articles", _carried_over(both, both.stages)
    yield f"{length:,}: learned to the end", both
    kept = _carried_over(own, first, fresh=False)
    yield f"{length:,}: learned on paragraphs, all of it kept", kept


def _carried_over(config: RunConfig, before: Sequence[Stage], *, fresh: bool = True) -> RunConfig:
    """Before a run's stages others, the reach network of whose last one is kept and frozen; all
    else is not kept if the run is to begin anew.
    """
    stages = [
        replace(own, name=f"{own.name}-frozen", trains="all but reach") for own in config.stages
    ]
    stages[0] = replace(stages[0], fresh=fresh, reach_from=before[-1].name)
    return replace(config, stages=(*before, *stages))
