"""Narrow windows at the length of a paragraph: how much a learned reach gains where every token has
little to share out, and what of it matters.

The centre is a learned reach of 16 on average, at most 128, cut at a threshold of 0.5 from the
first step, whose network learns ten times as fast as the rest. Rows change one thing at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig
from ..training.config import Precision
from .plan import Plan, Planned, over_seeds
from .questions import (
    answering,
    fixed,
    full,
    heads_of,
    learned,
    said_of,
    wide_first,
    with_tokens,
)

__all__ = ["narrow_windows", "spread"]

CENTRE, MOST = 16, 128
FIXED = (64, 32, 16, 8, 4)
LEARNED = (64, 32, 16, 8)

# Of `narrow_ideas`, what helped.
WIDE_FIRST = (16, 8)

# Is it the token, or only the head? Who shares a reach.
SHARED = {"one reach for a head": "tokens", "one reach for a token": "heads"}

# What is another than at the centre: of the mechanism, and of the stage.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "budget on variance": ({"budget": "variance"}, {}),
    "budget on pairs": ({"budget": "pairs"}, {}),
    "k = 0.6": ({"threshold": 0.6}, {}),
    "learning rate ×1": ({}, {"reach_rate": 1.0}),
    "learning rate ×100": ({}, {"reach_rate": 100.0}),
}


def narrow_windows(
    *,
    data: str | list[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    steps: int = 1400,
    batch: int = 64,
    length: int = 384,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """Full attention, fixed windows, learned ones, and single changes around one of them; each
    without and with the question's tokens as global ones, but for those that tell what a token and
    what a head adds. At last come windows that are wide at first.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None for articles that are kept from `data`.
        start: weights to start from, with their tokenizer.
        steps: of training.
        batch: examples at once.
        length: tokens of an example.
        learning_rate: the highest.
        precision: `"bf16"` or `"float32"`.
        seeds: of every row.
    """
    base = answering(
        data=data, dev=dev, start=start, steps=steps, batch=batch, length=length,
        learning_rate=learning_rate, precision=precision,
    )  # fmt: skip
    runs: list[Planned] = []
    runs += over_seeds("full attention", full(with_tokens(base, False)), seeds)
    for tokens in (False, True):
        own = with_tokens(base, tokens)
        rows = _rows(own) if tokens else _rows(own) | _shared(own, heads_of(start))
        for row, config in rows.items():
            runs += over_seeds(f"{row}, {said_of(tokens)}", config, seeds)
    for tokens in (False, True):
        for reach in WIDE_FIRST:
            config = wide_first(_learned(with_tokens(base, tokens), mean_reach=reach))
            runs += over_seeds(f"learned {reach}, wide first, {said_of(tokens)}", config, seeds)
    return Plan(
        title="Narrow windows",
        about="Questions about paragraphs, F1. Windows of so many tokens to each side, fixed or on "
        "average, without and with the question's tokens as global ones.",
        runs=tuple(runs),
    )


def _rows(base: RunConfig) -> dict[str, RunConfig]:
    found = {f"fixed {reach}": fixed(base, reach) for reach in FIXED}
    found |= {f"learned {reach}": _learned(base, mean_reach=reach) for reach in LEARNED}
    for name, (mechanism, stage) in CHANGES.items():
        found[f"learned {CENTRE}, {name}"] = _learned(base, stage, **mechanism)
    found[f"learned {CENTRE}, two stages"] = _two_stages(base)
    return found


def _shared(base: RunConfig, heads: int) -> dict[str, RunConfig]:
    found = {f"fixed {CENTRE}, another for each head": fixed(base, spread(CENTRE, heads))}
    for name, shared in SHARED.items():
        found[f"learned {CENTRE}, {name}"] = _learned(base, shared=shared)
    return found


def spread(mean: int, heads: int) -> list[int]:
    """Windows for heads, each larger than the one before by the same factor, with this mean."""
    factor = 2.0 ** (6 / max(heads - 1, 1))
    shares = [factor**head for head in range(heads)]
    found = [max(round(mean * heads * share / sum(shares)), 1) for share in shares]
    found[-1] += mean * heads - sum(found)
    return found


def _learned(config: RunConfig, stage: dict[str, Any] | None = None, **settings: Any) -> RunConfig:
    return learned(config, stage=stage, **{"mean_reach": CENTRE, "max_reach": MOST, **settings})


def _two_stages(config: RunConfig) -> RunConfig:
    """The reach network learns softly, together with all the rest, for half of the steps; then all
    but it begins anew, and windows are cut.
    """
    own = _learned(config)
    (stage,) = own.stages
    half = max(stage.steps // 2, 1)
    first = replace(stage, name="soft", steps=half, cut=False)
    second = replace(
        stage, name="cut", cut=True, fresh=True, reach_from="soft", trains="all but reach"
    )
    return replace(own, stages=(first, second))
