"""Rows of runs beside each other: mean and deviation over seeds, and how sure a difference is."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from ..training import RunConfig
from .records import Done

__all__ = ["Compared", "Spread", "compared", "share_better"]

DRAWS = 10_000

# Of the largest gain: what shares of questions differ by at the least is far more.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over seeds; not a number where one of them has none."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if not all(map(math.isfinite, values)):
            return cls(math.nan, None, len(values))
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A row of the table.

    Attributes:
        row: its name.
        quality: the main metric.
        also: other metrics, by name.
        published: what others reported.
        asked_reach: tokens to each side of windows, as asked for, on average; None without.
        reach: how far tokens reached, where that was learned.
        better: with what probability the row is better than the first one, by a paired bootstrap
            over seeds; None for the first row, and where seeds cannot be paired.
        pairs: computed for a token, without padding.
    """

    row: str
    quality: Spread
    also: dict[str, Spread]
    published: str | None
    asked_reach: float | None
    reach: Spread | None
    better: float | None
    pairs: Spread | None
    tokens_per_second: Spread | None
    peak_memory: float | None
    seconds: float
    parameters: int


def compared(done: Sequence[Done], *, lower_is_better: bool) -> list[Compared]:
    """The rows of a plan's results, in the plan's order."""
    rows: dict[str, list[Done]] = {}
    for planned, result in done:
        rows.setdefault(planned.row, []).append((planned, result))
    first: dict[int, float] | None = None
    also = dict.fromkeys(name for _, result in done for name in result.get("also", ()))
    found = []
    for row, runs in rows.items():
        values = {
            planned.config.seed: _metric(result, result["metric"]) for planned, result in runs
        }
        better = None
        if first is None:
            first = values
        else:
            shared = sorted(values.keys() & first.keys())
            if len(shared) > 1:
                gains = [values[seed] - first[seed] for seed in shared]
                if all(map(math.isfinite, gains)):
                    better = share_better([-g for g in gains] if lower_is_better else gains)
        results = [result for _, result in runs]
        found.append(
            Compared(
                row=row,
                quality=Spread.of(list(values.values())),
                also={
                    name: Spread.of([_metric(result, name) for result in results])
                    for name in also
                    if all(name in result["metrics"] for result in results)
                },
                published=runs[0][0].published,
                asked_reach=_asked_reach(runs[0][0].config),
                reach=_spread(results, "mean_reach"),
                better=better,
                pairs=_spread(results, "pairs"),
                tokens_per_second=_spread(results, "tokens_per_second"),
                peak_memory=max(
                    (r["peak_memory"] for r in results if r.get("peak_memory")), default=None
                ),
                seconds=sum(r["seconds"] for r in results),
                parameters=results[0]["parameters"],
            )
        )
    return found


def share_better(gains: Sequence[float], *, seed: int = 0) -> float:
    """In how many of the draws, with replacement, a mean gain is above 0; ties count half, such as
    rounding has parted too.

    Few seeds say little: of two, no draw but three is possible.
    """
    if not gains:
        return math.nan
    source = random.Random(seed)
    least = ROUNDING * max(map(abs, gains))
    count = 0.0
    for _ in range(DRAWS):
        total = math.fsum(source.choices(gains, k=len(gains)))
        count += 0.5 if abs(total) <= least else float(total > 0)
    return count / DRAWS


def _metric(result: dict[str, Any], name: str) -> float:
    value = result["metrics"][name]
    # In JSON what is no number is null: weights that the last step has ruined.
    return math.nan if value is None else float(value)


def _asked_reach(config: RunConfig) -> float | None:
    """Of the last stage, over layers and heads."""
    asked = config.mechanism or []
    found = []
    for own in asked if isinstance(asked, list) else [asked]:
        settings = config.stages[-1].mechanism_of(own)
        each = settings.get("mean_reach", settings.get("left"))
        if settings["kind"] in ("LearnedWindow", "SlidingWindow") and each is not None:
            found.append(fmean(each if isinstance(each, list) else [each]))
    return fmean(found) if found else None


def _spread(results: Sequence[dict[str, Any]], name: str) -> Spread | None:
    values = [float(result[name]) for result in results if result.get(name) is not None]
    return Spread.of(values) if values else None
