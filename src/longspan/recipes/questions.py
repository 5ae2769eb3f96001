"""What recipes about questions have in common: data, weights to start from, and mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig, Stage

__all__ = [
    "answering",
    "fixed",
    "full",
    "learned",
    "reaching",
    "said_of",
    "with_settings",
    "with_tokens",
]

# A small encoder, where there are no weights to start from.
SMALL = {"width": 96, "layers": 2, "heads": 4}

# How many times the mean a learned reach may be.
MOST = 8

# The reach networks learn so many times as fast as the rest.
REACH_RATE = 10.0


def answering(
    *,
    data: str | Sequence[str] | None,
    dev: str | None,
    start: str | None,
    steps: int,
    batch: int,
    length: int,
    learning_rate: float,
    precision: Any,
    **settings: Any,
) -> RunConfig:
    """A run on `squad` in one stage, with the tokenizer of the weights that it starts from; further
    settings are the task's. Its attention is full.
    """
    own: dict[str, Any] = {"length": length, **settings}
    if dev is not None:
        own["dev"] = dev
    if start is not None:
        own["tokenizer"] = start
    stage = Stage(
        steps=steps, batch=batch, learning_rate=learning_rate, reach_rate=REACH_RATE,
        record_every=max(steps // 50, 1), by_length=True,
    )  # fmt: skip
    return RunConfig(
        task={"name": "squad", "data": data, "settings": own},
        stages=(stage,),
        output="runs",
        start=start,
        model={} if start is not None else SMALL,
        precision=precision,
        mechanism={"kind": "FullAttention"},
    )


def with_settings(config: RunConfig, **settings: Any) -> RunConfig:
    """With other settings of the task."""
    return replace(config, task={**config.task, "settings": config.task["settings"] | settings})


def with_tokens(config: RunConfig, tokens: bool) -> RunConfig:
    """With or without the question's tokens as global ones."""
    return with_settings(config, global_tokens=tokens)


def said_of(tokens: bool) -> str:
    """How a row's name tells it."""
    return f"{'with' if tokens else 'without'} global tokens"


def full(config: RunConfig) -> RunConfig:
    """Full attention, by PyTorch's kernels."""
    return replace(config, mechanism={"kind": "FullAttention"})


def fixed(config: RunConfig, reach: int | list[int], **settings: Any) -> RunConfig:
    """A window of so many tokens to each side, or of another number for each head."""
    mechanism = {"kind": "SlidingWindow", "left": reach, "global_projections": False, **settings}
    return replace(config, mechanism=mechanism)


def learned(
    config: RunConfig, *, stage: dict[str, Any] | None = None, **settings: Any
) -> RunConfig:
    """A learned window, and what is another in every stage."""
    stages = tuple(replace(own, **(stage or {})) for own in config.stages)
    return replace(config, mechanism={"kind": "LearnedWindow", **settings}, stages=stages)


def reaching(config: RunConfig, reach: int) -> RunConfig:
    """A learned window of so many tokens on average."""
    return learned(config, mean_reach=reach, max_reach=MOST * reach)
