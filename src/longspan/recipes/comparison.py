"""Mechanisms beside each other on one task: same model, data and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import need_int, need_number
from ..tasks.registry import kind_of_task
from ..training import RunConfig, Stage
from .plan import Plan, Planned, over_seeds

__all__ = ["MECHANISMS", "comparison"]

# By short names, with the reach that makes their pairs comparable: about 2·reach + 1 a token.
MECHANISMS: dict[str, Any] = {
    "full": lambda reach: {"kind": "FullAttention"},
    "window": lambda reach: {
        "kind": "SlidingWindow", "left": reach, "global_projections": False,
    },
    "learned": lambda reach: {
        "kind": "LearnedWindow", "mean_reach": reach, "max_reach": 8 * reach,
    },
    "bigbird": lambda reach: {"kind": "BigBird", "block": max(2 * reach // 6, 1)},
}  # fmt: skip

CAUSAL = ("bytes", "recall", "birthplaces")

# For matrices of language models: `bytes` took 3.46 bits with AdamW at its best, 3.02 with this.
MUON = {"optimizer": "muon", "matrix_rate": 10.0}


def comparison(
    task: str,
    mechanisms: Sequence[str] = ("full", "window", "learned"),
    *,
    data: str | None = None,
    reach: int = 16,
    steps: int = 300,
    batch: int = 8,
    length: int | None = None,
    learning_rate: float = 1e-3,
    seeds: int = 3,
    soft: float = 0.5,
    model: dict[str, Any] | None = None,
) -> Plan:
    """One row for each mechanism, each over the same seeds.

    Args:
        task: by name.
        mechanisms: short names; the others are compared with the first.
        data: the task's; None is what ships in the package.
        reach: tokens to each side, on average.
        steps: of training.
        batch: examples at once.
        length: the most tokens of an example; None is the task's own.
        learning_rate: the highest; the reach network's is ten times as high, and so is that of the
            matrices of language models, which Muon trains.
        seeds: how many, from 0.
        soft: the share of the steps in which learned windows weigh pairs beyond their reach, and do
            not cut them yet: a reach grows towards what its token sees. The others have the same
            two stages.
        model: fields of `longspan.models.Config`; a small one by default.
    """
    kind_of_task(task)
    unknown = [name for name in mechanisms if name not in MECHANISMS]
    if unknown:
        raise ValueError(
            f"compare: mechanisms must be among {', '.join(MECHANISMS)}, got {', '.join(unknown)}"
        )
    if not mechanisms or len(set(mechanisms)) < len(mechanisms):
        raise ValueError(
            "compare: mechanisms must be at least one, and each once, got "
            f"{', '.join(mechanisms) or 'none'}"
        )
    if task in (*CAUSAL, "translate") and "bigbird" in mechanisms:
        raise ValueError(f"compare: bigbird looks ahead, and {task} is written from left to right")
    settings = {} if length is None else {"length": length}
    own: dict[str, Any] = {"name": task, "data": data, "settings": settings}
    need_int("compare: steps", steps, at_least=1)
    need_number("compare: soft", soft)
    if not 0 <= soft < 1:
        raise ValueError(f"compare: soft must be a share from 0 to below 1, got {soft}")
    runs: list[Planned] = []
    for name in mechanisms:
        config = RunConfig(
            task=own,
            model=model or {"width": 128, "layers": 2, "heads": 4},
            mechanism=MECHANISMS[name](reach),
            stages=_stages(
                steps,
                soft,
                learned=name == "learned",
                batch=batch,
                learning_rate=learning_rate,
                **(MUON if task in CAUSAL else {}),
            ),
            output="runs",
        )
        runs += over_seeds(name, config, range(seeds))
    return Plan(
        title=f"Mechanisms on {task}",
        about=f"The same model, data and steps; {reach} tokens to each side on average where a "
        "mechanism looks at some.",
        runs=tuple(runs),
        # The others, too: what was made of them before lies in the same table.
        table=tuple(dict.fromkeys([*mechanisms, *MECHANISMS])),
    )


def _stages(steps: int, soft: float, *, learned: bool, **more: Any) -> tuple[Stage, ...]:
    first = round(steps * soft)
    more |= {"reach_rate": 10.0, "evaluate_every": max(steps // 5, 1)}
    last = Stage(name="last", steps=steps - first, cut=True if learned else None, **more)
    if not first:
        return (last,)
    return (Stage(name="first", steps=first, cut=False if learned else None, **more), last)
