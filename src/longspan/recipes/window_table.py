"""The table of the 2022 reports on the learned window: what each row was, and what it is here.

The reports trained a question answerer over Longformer on a dataset that they do not name. Stage 1
learns the window softly at a small scale; stage 2 takes the reach network alone from such a run,
freezes it, cuts at a threshold and trains at a large scale. Their σ is a variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..errors import need_int
from ..training import RunConfig
from ..training.config import Precision
from .plan import Plan, over_seeds
from .questions import (
    answering,
    fixed,
    learned,
    on_paragraphs,
    paragraphs_first,
    said_of,
    with_settings,
    with_tokens,
)

__all__ = ["window_table"]

BAND, MAX_REACH, MEAN_REACH = 128, 256, 128
RATES, VARIANCES, THRESHOLDS = (1, 10, 100), (10, 100), (0.5, 0.6)
# The threshold at which variances are told as reaches.
TOLD_AT = 0.5

# What the reports give for a row, F1 and exact match; they left the others open.
PUBLISHED = {
    "free variance from 1, learning rate ×1": "57.29, 49.13",
    "free variance from 1, learning rate ×100": "58.01, 50.02",
    "window 128, without global tokens": "58.17, 53.20",
    "window 128, with global tokens": "73.25, 68.08",
    "average variance 10, without global tokens": "38.80, 34.12",
    "average variance 10, with global tokens": "69.38, 64.38",
    "fixed variance 10, without global tokens": "34.46, 30.23",
    "average variance 100, without global tokens": "51.20, 46.39",
    "average variance 100, with global tokens": "72.07, 67.13",
    "fixed variance 100, without global tokens": "39.74, 35.62",
    "long: window 128, without global tokens": "58.17, 53.20",
    "long: window 108, without global tokens": "58.00, 53.19",
    "long: fixed variance for 128, without global tokens": "59.04, 54.17",
    "long: learned, k = 0.5, without global tokens": "59.68, 54.87",
}


class _Scale(NamedTuple):
    """What a stage at the scale of whole articles has, and how many steps on paragraphs go before
    it.
    """

    paragraphs: int
    steps: int
    batch: int
    length: int


def window_table(
    *,
    data: str | Sequence[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    parts: Sequence[str] = ("free", "soft", "forms", "long"),
    steps: int = 1400,
    batch: int = 64,
    short: int = 384,
    paragraphs: int = 1400,
    long_steps: int = 900,
    long_batch: int = 16,
    long: int = 4096,
    as_wide: Sequence[int] = (),
    dev_questions: int | None = None,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """Every row of the reports, and those that they left open.

    Args:
        data: SQuAD files to learn from, or a folder with them; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: weights to start from, with their tokenizer.
        parts: of the table: `"free"`, variances that no budget holds; `"soft"`, bells that cut
            nothing, under one; `"forms"`, how a bell can act; `"long"`, windows that are cut, on
            whole articles.
        steps: of a stage on paragraphs.
        batch: examples at once there.
        short: tokens of an example there.
        paragraphs: steps on paragraphs with which a row of the long part begins, with windows as
            they are on articles: a model of short texts learns little from articles alone. 0 for
            those alone.
        long_steps: of a stage on whole articles.
        long_batch: examples at once there.
        long: tokens of an example there.
        as_wide: fixed windows on whole articles, as wide as learned ones came out on average.
        dev_questions: so many questions to be measured on; None for all.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    made: dict[str, Callable[[], Iterator[tuple[str, RunConfig]]]] = {
        "free": lambda: _free(base),
        "soft": lambda: _soft(base),
        "forms": lambda: _forms(base),
        "long": lambda: _long(base, _Scale(paragraphs, long_steps, long_batch, long), as_wide),
    }
    for part in parts:
        if part not in made:
            raise ValueError(f"window_table: parts are among {', '.join(made)}, got {part!r}")
    need_int("window_table: long_steps", long_steps, at_least=1)
    need_int("window_table: paragraphs", paragraphs, at_least=0)
    base = answering(
        data=data, dev=dev, start=start, steps=steps, batch=batch, length=short,
        learning_rate=learning_rate, precision=precision, dev_questions=dev_questions,
    )  # fmt: skip
    return Plan(
        title="The learned window of the 2022 reports",
        about="Question answering, F1 and exact match. The first rows learn variances freely; then "
        "come soft bells under a budget beside fixed ones; then windows cut at a threshold, at the "
        "scale of whole articles, with the reach network of a short run.",
        runs=tuple(
            run
            for part in parts
            for row, config in made[part]()
            for run in over_seeds(row, config, seeds, published=PUBLISHED.get(row))
        ),
        table=tuple(row for rows in made.values() for row, _ in rows()),
    )


def _free(base: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    for rate in RATES:
        own = _bell(with_tokens(base, False), None, 1.0, reach_rate=float(rate))
        yield f"free variance from 1, learning rate ×{rate}", own


def _soft(base: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    for tokens in (False, True):
        own, said = with_tokens(base, tokens), said_of(tokens)
        yield f"window {BAND}, {said}", fixed(own, BAND)
        for variance in VARIANCES:
            yield f"average variance {variance}, {said}", _bell(own, "variance", variance)
            still = _bell(own, "variance", variance, trains="all but reach")
            yield f"fixed variance {variance}, {said}", still


def _forms(base: RunConfig) -> Iterator[tuple[str, RunConfig]]:
    """Added to the scores it is a row of `_soft`, whether normalised or not: softmax takes out what
    all keys have in common.
    """
    own = with_tokens(base, False)
    for form in ("weight", "score"):
        for normalized in (False, True):
            row = f"average variance 10, form {form}{', normalised' if normalized else ''}"
            yield row, _bell(own, "variance", 10, form=form, normalized=normalized)


def _long(
    base: RunConfig, scale: _Scale, as_wide: Sequence[int]
) -> Iterator[tuple[str, RunConfig]]:
    (short,) = base.stages
    stages = (replace(short, name="long", steps=scale.steps, batch=scale.batch),)
    large = with_settings(base, length=scale.length, by="article", empty=1)
    length = base.task["settings"]["length"]
    whole = partial(paragraphs_first, steps=scale.paragraphs, batch=short.batch, length=length)
    for tokens in (False, True):
        own, said = replace(with_tokens(large, tokens), stages=stages), said_of(tokens)
        for reach in (BAND, 108, *as_wide):
            yield f"long: window {reach}, {said}", whole(fixed(own, reach))
        still = whole(_cut(own, 0.5, "all but reach"))
        yield f"long: fixed variance for {MEAN_REACH}, {said}", still
        for threshold in THRESHOLDS:
            frozen = whole(_cut(own, threshold, "all but reach"))
            yield f"long: learned, k = {threshold}, {said}", _reach_first(frozen, base)


def _bell(
    config: RunConfig,
    budget: str | None,
    variance: float,
    *,
    reach_rate: float = 10.0,
    trains: Any = "all",
    **settings: Any,
) -> RunConfig:
    """A bell that is not cut, within a band."""
    settings |= {"budget": budget, "max_reach": BAND}
    if budget is None:
        settings["initial_variance"] = variance
    else:
        settings["mean_reach"] = _reach_of_mean(variance)
    stage = {"cut": False, "reach_rate": reach_rate, "trains": trains}
    return learned(config, stage=stage, **settings)


def _reach_of_mean(variance: float) -> float:
    """The reach, as a real number, whose variance at the threshold `TOLD_AT` is this mean: budgets
    are told as reaches.
    """
    return math.sqrt(-2 * math.log(TOLD_AT) * variance)


def _cut(config: RunConfig, threshold: float, trains: str) -> RunConfig:
    return learned(
        config, stage={"cut": True, "trains": trains}, budget="variance", mean_reach=MEAN_REACH,
        max_reach=MAX_REACH, threshold=threshold,
    )  # fmt: skip


def _reach_first(config: RunConfig, base: RunConfig) -> RunConfig:
    """Stage 1 short and soft with an average variance of 100 and no global tokens; what comes after
    has its reach network alone.
    """
    begin, *others = config.stages
    (short,) = base.stages
    assert isinstance(config.mechanism, dict)
    # Whatever threshold comes after.
    told = {} if config.mechanism["threshold"] == TOLD_AT else {"threshold": TOLD_AT}
    soft = replace(
        short,
        name="short",
        cut=False,
        mechanism={
            "budget": "variance", "mean_reach": _reach_of_mean(100), "max_reach": BAND, **told,
        },
    )  # fmt: skip
    first = on_paragraphs(soft, base.task["settings"]["length"], global_tokens=False)
    begin = replace(begin, fresh=True, reach_from=first.name)
    return replace(config, stages=(first, begin, *others))
