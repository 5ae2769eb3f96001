"""Times against lengths, and where two of them cross."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .records import Outcome

__all__ = ["crossover", "curve"]


def curve(outcomes: Iterable[Outcome], name: str, which: str) -> dict[int, float]:
    """Median seconds by length, of contenders called `"name, N=…"`.

    Args:
        outcomes: of a problem.
        name: of the contender, at all lengths.
        which: `"forward"` or `"both"`.
    """
    found = {}
    for outcome in outcomes:
        sample = getattr(outcome, which)
        if outcome.name == f"{name}, N={outcome.length}" and sample is not None:
            found[outcome.length] = sample.median
    return dict(sorted(found.items()))


def crossover(ours: dict[int, float], dense: dict[int, float]) -> float | None:
    """The length from which on ours stays faster; between measured lengths, along straight lines in
    a plot of logarithms. The shortest length when it always is, None when it never is.
    """
    lengths = sorted(ours.keys() & dense.keys())
    lead = [math.log(dense[n] / ours[n]) for n in lengths]
    behind = [place for place, value in enumerate(lead) if value <= 0]
    if not behind:
        return float(lengths[0]) if lengths else None
    last = behind[-1]
    if last + 1 == len(lengths):
        return None
    share = -lead[last] / (lead[last + 1] - lead[last])
    low, high = math.log(lengths[last]), math.log(lengths[last + 1])
    return math.exp(low + share * (high - low))
