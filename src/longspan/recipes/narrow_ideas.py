"""What might make a narrow learned window better: of its network, of its budget, and of the order
in which it learns. Each row changes one thing; the last ones have two together.

Ideas are chosen among on articles that are kept from the training data: a file to be measured on is
for what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig
from ..training.config import Precision
from .plan import Plan, Planned, over_seeds
from .questions import answering, in_turn, learned, said_of, wide_first, with_tokens

__all__ = ["narrow_ideas"]

# The widest that a token may look, and how far apart heads begin, where they do.
MOST, SPREAD = 128, 64.0

# Of the mechanism.
CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "k = 0.1": {"threshold": 0.1},
    "a number for each head": {"biased": True},
    "heads begin apart": {"biased": True, "spread": SPREAD},
    "reads the stream": {"reads": "stream"},
    "left and right apart": {"sided": True},
    "one budget for all layers": {"pooled": True},
}

# Of the stages, beside "wide first": the share of the steps, and what is another.
Stages = tuple[tuple[float, dict[str, Any]], ...]
SOFT_FIRST: Stages = ((1 / 3, {"cut": False}), (2 / 3, {}))
LOW_FIRST: Stages = ((1 / 2, {"mechanism": {"threshold": 0.1}}), (1 / 2, {}))


def narrow_ideas(
    *,
    data: str | list[str] | None = None,
    dev: str | None = None,
    start: str | None = None,
    reach: int = 16,
    steps: int = 1400,
    batch: int = 64,
    length: int = 384,
    learning_rate: float = 1.5e-4,
    precision: Precision = "bf16",
    seeds: Sequence[int] = (0, 1, 2),
) -> Plan:
    """A learned window as `narrow_windows` has it, and with one thing changed; each without and
    with the question's tokens as global ones.

    Args:
        data: SQuAD files to learn from; None is the sample in the package.
        dev: the file to be measured on; None, as it should be while ideas are chosen, for articles
            that are kept from `data`.
        start: weights to start from, with their tokenizer.
        reach: tokens to each side, on average.
        steps: of training, over all stages.
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
    for tokens in (False, True):
        own = with_tokens(base, tokens)
        for row, config in _rows(own, reach).items():
            runs += over_seeds(f"{row}, {said_of(tokens)}", config, seeds)
    for tokens in (False, True):
        for row, config in _together(with_tokens(base, tokens), reach).items():
            runs += over_seeds(f"{row}, {said_of(tokens)}", config, seeds)
    return Plan(
        title="Ideas for narrow windows",
        about=f"Questions about paragraphs, F1, with learned windows of {reach} tokens to each "
        "side on average.",
        runs=tuple(runs),
    )


def _rows(base: RunConfig, reach: int) -> dict[str, RunConfig]:
    found = {row: _learned(base, reach, **changes) for row, changes in CHANGES.items()}
    own = _learned(base, reach)
    found["soft first"] = in_turn(own, *SOFT_FIRST)
    found["wide first"] = wide_first(own)
    found["k = 0.1 first"] = in_turn(own, *LOW_FIRST)
    return found


def _together(base: RunConfig, reach: int) -> dict[str, RunConfig]:
    """What has helped, two at a time."""
    wide = wide_first(_learned(base, reach))
    first, *others = wide.stages
    soft = replace(wide, stages=(replace(first, cut=False), *others))
    sided = wide_first(_learned(base, reach, sided=True))
    return {"soft and wide first": soft, "wide first, left and right apart": sided}


def _learned(base: RunConfig, reach: int, **changes: Any) -> RunConfig:
    return learned(base, mean_reach=reach, max_reach=MOST, **changes)
