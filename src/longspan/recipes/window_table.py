"""The table of the 2022 reports on the learned window: what each row was, and what it is here.

The reports trained a question answerer over Longformer on a dataset that they do not name. Stage 1
learns the window softly at a small scale; stage 2 takes the reach network alone from such a run,
freezes it, cuts at a threshold and trains at a large scale. Their σ is a variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig, Stage
from .plan import Plan, Planned, over_seeds

__all__ = ["window_table"]

BAND, MAX_REACH, MEAN_REACH = 128, 256, 128
LONG = 4096


def window_table(
    *,
    data: str | None = None,
    start: str | None = None,
    steps: int = 1000,
    batch: int = 16,
    short: int = 384,
    long: int = LONG,
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """Every row of the reports, and those that they left open.

    Args:
        data: SQuAD files, or a folder with them; None is the sample in the package.
        start: weights to start from.
        steps: of every stage.
        batch: examples at once.
        short: tokens of stage 1.
        long: tokens of stage 2.
        seeds: of every row.
    """
    task: dict[str, Any] = {"name": "squad", "data": data, "settings": {"length": short}}
    stage = Stage(steps=steps, batch=batch, learning_rate=1.5e-4, evaluate_every=max(steps // 4, 1))
    base = RunConfig(task=task, stages=(stage,), output="runs", start=start, model=_model(start))
    runs: list[Planned] = []
    for rate in (1, 10, 100):
        row = f"free variance from 1, learning rate ×{rate}"
        runs += over_seeds(row, _soft(base, None, 1.0, reach_rate=rate), seeds)
    for tokens in (False, True):
        said = "with" if tokens else "without"
        own = _with_tokens(base, tokens)
        runs += over_seeds(f"window {BAND}, {said} global tokens", _fixed(own, BAND), seeds)
        for variance in (10, 100):
            average = _soft(own, "variance", float(variance))
            runs += over_seeds(f"average variance {variance}, {said} global tokens", average, seeds)
            runs += over_seeds(
                f"fixed variance {variance}, {said} global tokens",
                _soft(own, "variance", float(variance), trains="all but reach"),
                seeds,
            )
    for tokens in (False, True):
        said = "with" if tokens else "without"
        own = _with_tokens(base, tokens)
        large = _with_settings(own, length=long, by="article")
        for reach in (BAND, 108):
            row = f"long: window {reach}, {said} global tokens"
            runs += over_seeds(row, _fixed(large, reach), seeds)
        fixed = _cut(large, 0.5, trains="all but reach", reach_from=None)
        runs += over_seeds(
            f"long: fixed variance for {MEAN_REACH}, {said} global tokens", fixed, seeds
        )
        for threshold in (0.5, 0.6):
            row = f"long: learned, k = {threshold}, {said} global tokens"
            runs += over_seeds(row, _two_stages(large, threshold, short), seeds)
    return Plan(
        title="The learned window of the 2022 reports",
        about="Question answering, F1 and exact match. The first rows learn variances freely; then "
        "come soft bells under a budget beside fixed ones; then windows cut at a threshold, at the "
        "scale of whole articles, with the reach network of a short run.",
        runs=tuple(runs),
    )


def _model(start: str | None) -> dict[str, Any]:
    """A small encoder where nothing is started from."""
    if start is not None:
        return {}
    return {"width": 128, "layers": 4, "heads": 4}


def _with_settings(config: RunConfig, **settings: Any) -> RunConfig:
    """With other settings of the task."""
    return replace(config, task={**config.task, "settings": config.task["settings"] | settings})


def _with_tokens(config: RunConfig, tokens: bool) -> RunConfig:
    return _with_settings(config, global_tokens=tokens)


def _fixed(config: RunConfig, reach: int) -> RunConfig:
    return replace(
        config,
        mechanism={"kind": "SlidingWindow", "left": reach, "global_projections": False},
    )


def _reach_of_mean(variance: float) -> float:
    """The reach, as a real number, whose variance at the threshold of 0.5 is this mean: budgets are
    told as reaches.
    """
    return math.sqrt(2 * math.log(2) * variance)


def _learned(**settings: Any) -> dict[str, Any]:
    return {"kind": "LearnedWindow", **settings}


def _soft(
    config: RunConfig,
    budget: str | None,
    variance: float,
    *,
    reach_rate: float = 10.0,
    trains: Any = "all",
) -> RunConfig:
    """A bell that is not cut, within a band."""
    settings: dict[str, Any] = {"budget": budget, "max_reach": BAND}
    if budget is None:
        settings["initial_variance"] = variance
    else:
        settings["mean_reach"] = _reach_of_mean(variance)
    stages = tuple(
        replace(own, cut=False, reach_rate=reach_rate, trains=trains) for own in config.stages
    )
    return replace(config, mechanism=_learned(**settings), stages=stages)


def _cut(config: RunConfig, threshold: float, *, trains: Any, reach_from: str | None) -> RunConfig:
    settings = {
        "budget": "variance", "mean_reach": MEAN_REACH, "max_reach": MAX_REACH,
        "threshold": threshold,
    }  # fmt: skip
    stages = tuple(
        replace(own, cut=True, trains=trains, reach_from=reach_from) for own in config.stages
    )
    return replace(config, mechanism=_learned(**settings), stages=stages)


def _two_stages(config: RunConfig, threshold: float, short: int) -> RunConfig:
    """Stage 1 short and soft with an average variance of 100 and no global tokens; stage 2 with its
    reach network alone.
    """
    (stage,) = config.stages
    first = replace(
        stage,
        name="short",
        cut=False,
        reach_rate=10.0,
        task={"settings": {"length": short, "by": "paragraph", "global_tokens": False}},
        mechanism={"budget": "variance", "mean_reach": _reach_of_mean(100), "max_reach": BAND},
    )
    second = replace(
        stage, name="long", cut=True, fresh=True, reach_from="short", trains="all but reach"
    )
    own = _cut(config, threshold, trains="all", reach_from=None)
    return replace(own, stages=(first, second))
