"""The first thing to run: a fixed and a learned reach on real text, in minutes, on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import need_int
from ..training import RunConfig, Stage
from .plan import Plan, over_seeds

__all__ = ["quick"]

REACH = 4

# The best of 1e-3, 3e-3 and 1e-2 for each of the two, on text that neither learned from, with a
# seed that is not among those below: 3.33, 3.02 and 3.32 bits fixed, 3.17, 2.87 and 3.19 learned.
LEARNING_RATE = 3e-3
# The reach network learns as fast as the rest, and the matrices, with Muon, ten times as fast.
REACH_RATE = 1.0
MATRIX_RATE = 10.0


def quick(*, steps: int = 250, seeds: Sequence[int] = (0, 1, 2), reach: int = REACH) -> Plan:
    """Names the next byte of an excerpt of enwik8, twice with the same model, data and steps: once
    every token looks `reach` bytes back, once so many on average.

    Args:
        steps: of training.
        seeds: of each of the two.
        reach: bytes that a token looks back, on average.
    """
    need_int("quick: steps", steps, at_least=1)
    stage = Stage(
        steps=steps,
        batch=16,
        learning_rate=LEARNING_RATE,
        reach_rate=REACH_RATE,
        optimizer="muon",
        matrix_rate=MATRIX_RATE,
        record_every=max(steps // 25, 1),
        evaluate_every=max(steps // 5, 1),
    )

    def config(mechanism: dict[str, Any]) -> RunConfig:
        return RunConfig(
            task={"name": "bytes", "data": None, "settings": {"length": 256}},
            model={"width": 64, "layers": 2, "heads": 4},
            mechanism=mechanism,
            stages=(stage,),
            output="runs",
        )

    fixed = {"kind": "SlidingWindow", "left": reach, "global_projections": False}
    learned = {"kind": "LearnedWindow", "mean_reach": reach, "max_reach": 16 * reach}
    return Plan(
        title=f"A fixed and a learned reach of {reach} bytes on Wikipedia's text",
        about="Two layers of four heads name every next byte; fewer bits are better. In the first "
        f"row each token looks {reach} bytes back; in the second each token and head decides how "
        "far, and only the mean is the same.",
        runs=tuple(
            over_seeds(f"fixed, {reach} back", config(fixed), seeds)
            + over_seeds(f"learned, {reach} back on average", config(learned), seeds)
        ),
    )
