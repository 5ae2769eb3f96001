"""Which options of a learned window go together."""

from __future__ import annotations

from typing import Any

from ..errors import describe, need_bool, need_int, need_number

__all__ = ["check_budget", "check_network", "check_reach", "check_sides"]

BUDGETS = ("reach", "variance", "pairs", None)
SHARED = ("tokens", "heads", None)
READS = ("query", "stream")


def check_budget(
    budget: Any, mean_reach: Any, max_reach: Any, threshold: Any, initial_variance: Any, pooled: Any
) -> None:
    """How far tokens look together."""
    need_int("LearnedWindow: max_reach", max_reach, at_least=1)
    need_number("LearnedWindow: mean_reach", mean_reach)
    need_number("LearnedWindow: threshold", threshold)
    need_bool("LearnedWindow: pooled", pooled)
    if not 0 < threshold < 1:
        raise ValueError(f"LearnedWindow: threshold must be between 0 and 1, got {threshold}")
    if budget not in BUDGETS:
        raise ValueError(
            "LearnedWindow: budget must be 'reach', 'variance', 'pairs' or None, got "
            f"{describe(budget)}"
        )
    if pooled and budget is None:
        raise ValueError("LearnedWindow: pooled is of a budget, and budget is None")
    if budget is not None:
        check_reach(mean_reach, max_reach)
    if (initial_variance is not None) != (budget is None):
        raise ValueError(
            "LearnedWindow: initial_variance is where a free window starts: give it with "
            "budget=None, and only then"
        )


def check_reach(mean_reach: float, max_reach: int) -> None:
    """Of a budget; also when they were changed in training."""
    if not 0 < mean_reach <= max_reach:
        raise ValueError(
            "LearnedWindow: mean_reach must be above 0 and at most max_reach, got "
            f"{mean_reach} and {max_reach}"
        )


def check_network(reads: Any, stream_dim: Any, biased: Any, spread: Any, shared: Any) -> None:
    """What tokens and heads ask for."""
    if shared not in SHARED:
        raise ValueError(
            f"LearnedWindow: shared must be 'tokens', 'heads' or None, got {describe(shared)}"
        )
    if reads not in READS:
        raise ValueError(f"LearnedWindow: reads must be 'query' or 'stream', got {describe(reads)}")
    if stream_dim is not None:
        need_int("LearnedWindow: stream_dim", stream_dim, at_least=1)
        if reads != "stream":
            raise ValueError(
                "LearnedWindow: stream_dim is the width of what reads='stream' reads: give both, "
                "or leave it out"
            )
    need_bool("LearnedWindow: biased", biased)
    need_number("LearnedWindow: spread", spread)
    if not spread > 0:
        raise ValueError(f"LearnedWindow: spread must be above 0, got {spread}")
    if spread != 1 and not biased:
        raise ValueError("LearnedWindow: spread is of a biased network: give biased=True with it")
    if biased and shared == "heads":
        raise ValueError(
            "LearnedWindow: a token that has one reach for all heads (shared='heads') has no use "
            "for a number of each head: leave out biased"
        )


def check_sides(sided: Any, causal: bool, shared: str | None, normalized: bool) -> None:
    """A reach to the left and one to the right."""
    need_bool("LearnedWindow: sided", sided)
    if sided and causal:
        raise ValueError("LearnedWindow: a causal window has one side: leave out sided")
    if sided and shared == "heads":
        raise ValueError(
            "LearnedWindow: shared='heads' is one reach for a token: leave out sided, or shared"
        )
    if sided and normalized:
        raise ValueError(
            "LearnedWindow: a bell of two widths has no one height: leave out normalized, or sided"
        )
