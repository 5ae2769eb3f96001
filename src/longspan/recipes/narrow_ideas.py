"""What might make a narrow learned window better: of its network, of its budget, and of the order
in which it learns. Each row changes one thing.

Ideas are chosen among on articles that are kept from the training data: a file to be measured on is
for what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..training import RunConfig
from .plan import Plan, Planned, over_seeds
from .questions import answering, learned, said_of, with_tokens

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

# Of the stages: the share of the steps that each has, and what is another in it than in the last.
ORDERS: dict[str, tuple[tuple[float, dict[str, Any]], ...]] = {
    "soft first": ((1 / 3, {"cut": False}), (2 / 3, {})),
    "wide first": (
        (1 / 4, {"mechanism": {"mean_reach": 64}}),
        (1 / 4, {"mechanism": {"mean_reach": 32}}),
        (1 / 2, {}),
    ),
    "k = 0.1 first": ((1 / 2, {"mechanism": {"threshold": 0.1}}), (1 / 2, {})),
}


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
    precision: Any = "bf16",
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
    return Plan(
        title="Ideas for narrow windows",
        about=f"Questions about paragraphs, F1, with learned windows of {reach} tokens to each "
        "side on average.",
        runs=tuple(runs),
    )


def _rows(base: RunConfig, reach: int) -> dict[str, RunConfig]:
    own: dict[str, Any] = {"mean_reach": reach, "max_reach": MOST}
    found = {row: learned(base, **own, **changes) for row, changes in CHANGES.items()}
    for row, stages in ORDERS.items():
        found[row] = _in_turn(learned(base, **own), stages)
    return found


def _in_turn(config: RunConfig, stages: tuple[tuple[float, dict[str, Any]], ...]) -> RunConfig:
    """One stage after the other, all with the same weights: the learning rate rises in the first
    and falls in the last.
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
