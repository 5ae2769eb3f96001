"""What recipes about questions have in common: data, weights to start from, and mechanisms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import need_int
from ..paths import expanded
from ..training import RunConfig, Stage
from ..training.config import Precision
from ..training.saving import described_model
from ..training.starting import is_run, stage_of

__all__ = [
    "answering",
    "fixed",
    "full",
    "heads_of",
    "in_turn",
    "learned",
    "on_paragraphs",
    "paragraphs_first",
    "reaching",
    "said_of",
    "wide_first",
    "with_settings",
    "with_tokens",
]

# A small encoder, where there are no weights to start from.
SMALL = {"width": 96, "layers": 2, "heads": 4}

# Those of a base model, where nobody tells.
HEADS = 12

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
    precision: Precision,
    **settings: Any,
) -> RunConfig:
    """A run on `squad` in one stage, with the tokenizer of the weights that it starts from, those
    of a checkpoint or of another run; further settings are the task's. Its attention is full.
    """
    need_int("steps", steps, at_least=1)
    own: dict[str, Any] = {"length": length, **settings}
    if dev is not None:
        own["dev"] = dev
    if start is not None:
        own["tokenizer"] = str(_without_reach(start)) if is_run(start) else start
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


def heads_of(start: str | None) -> int:
    """How many heads the layers of a model have, as far as a folder tells."""
    if start is None:
        return SMALL["heads"]
    if is_run(start):
        return int(described_model(stage_of(start))["config"]["heads"])
    path = expanded(start) / "config.json"
    told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return int(told.get("num_attention_heads", HEADS))


def _without_reach(start: str) -> Path:
    """The folder of a run's model, which has not learned how far to look: some rows would begin
    with what the others have to learn, and a fixed reach would be none.
    """
    stage = stage_of(start)
    stacks = described_model(stage)["mechanisms"]
    if any(own["kind"] == "LearnedWindow" for stack in stacks for own in stack):
        raise ValueError(
            f"start: {start} has learned windows, and this recipe compares learning them with not "
            "doing so: start from a run without them, with full attention or fixed windows"
        )
    return stage


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


def reaching(config: RunConfig, reach: int, **settings: Any) -> RunConfig:
    """A learned window of so many tokens on average."""
    return learned(config, mean_reach=reach, max_reach=MOST * reach, **settings)


def on_paragraphs(stage: Stage, length: int, **settings: Any) -> Stage:
    """A stage that reads paragraphs, whatever the run reads, with further settings of the task."""
    own = {"length": length, "by": "paragraph", **settings}
    return replace(stage, task={"settings": own})


def paragraphs_first(
    config: RunConfig, *, steps: int, batch: int, length: int = 384, **changes: Any
) -> RunConfig:
    """Before the articles their paragraphs, with the same weights: the learning rate rises on the
    paragraphs and falls on the articles.

    Args:
        steps: on paragraphs; 0 for a run without them.
        batch: examples at once there.
        length: tokens of a paragraph with its question.
        changes: what else is another in that stage.
    """
    if not steps:
        return config
    (last,) = config.stages
    first = replace(
        last, name="paragraphs", steps=steps, batch=batch, schedule="constant",
        record_every=max(steps // 50, 1), **changes,
    )  # fmt: skip
    articles = replace(last, name="articles", warmup=0.02)
    return replace(config, stages=(on_paragraphs(first, length), articles))


def wide_first(config: RunConfig) -> RunConfig:
    """A learned window that is four times as wide for a quarter of the steps, then twice as wide
    for another.
    """
    assert isinstance(config.mechanism, dict)
    reach = config.mechanism["mean_reach"]
    wider = ({"mechanism": {"mean_reach": times * reach}} for times in (4, 2))
    return in_turn(config, *((1 / 4, own) for own in wider), (1 / 2, {}))


def in_turn(config: RunConfig, *stages: tuple[float, dict[str, Any]]) -> RunConfig:
    """Stages one after the other, all with the same weights: the learning rate rises in the first
    and falls in the last.

    Args:
        stages: the share of the steps that each has, and what is another in it than in the run's
            own stage.
    """
    (whole,) = config.stages
    made = []
    for number, (share, changes) in enumerate(stages):
        last = number + 1 == len(stages)
        own = replace(
            whole,
            name=f"stage-{number + 1}",
            steps=max(round(share * whole.steps), 1),
            warmup=whole.warmup if number == 0 else 0.02,
            schedule=whole.schedule if last else "constant",
        )
        made.append(replace(own, **changes))
    return replace(config, stages=tuple(made))
