"""Axes: where a value lies on one, where its ticks are, and how many points it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .numbers import compact

__all__ = ["Scale", "scale_for", "thin"]

# Values this many times apart are told apart only on a logarithmic axis.
WIDE = 20.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values low…high to places start…stop, evenly or by their logarithm."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside, at most so many."""
        if self.log:
            found = self._log_ticks(most)
            if len(found) >= 2:
                return found
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for parts in ((1, 2, 5), (1, 3), (1,)):
            found = [part * 10.0**power for power in powers for part in parts]
            found = [value for value in found if self.low <= value <= self.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]

    def labels(self, most: int = 6) -> list[tuple[float, str]]:
        """Ticks with their texts, which all have as many digits as the finest needs."""
        ticks = self.ticks(most)
        if self.log or len(ticks) < 2 or max(abs(tick) for tick in ticks) >= 1e4:
            return [(tick, compact(tick)) for tick in ticks]
        places = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
        # Adding 0 takes the sign from a zero.
        return [(tick, f"{round(tick, places) + 0:,.{places}f}") for tick in ticks]


def _round_step(step: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(part * power for part in (1, 2, 5, 10) if part * power >= step * (1 - 1e-9))


def scale_for(
    values: Sequence[float],
    start: float,
    stop: float,
    *,
    log: bool | None = None,
    zero: bool = False,
    margin: float = 0.06,
) -> Scale:
    """A scale that holds all values with a margin at both ends.

    Args:
        values: finite; may be empty.
        start: the place of the lowest.
        stop: the place of the highest.
        log: logarithmic; None where the values are positive and far apart.
        zero: whether the axis begins at 0.
        margin: the share of the axis that is left free at each end.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if log is None:
        log = low > 0 and high / low > WIDE
    if log and low > 0 and high > low:
        spare = (high / low) ** margin
        return Scale(low / spare, high * spare, start, stop, log=True)
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    spare = (high - low) * margin
    return Scale(low if zero and low == 0 else low - spare, high + spare, start, stop)


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many of the points: the first, the last, and each stretch's lowest and highest.

    All that stay are points that were measured, and peaks are among them.
    """
    if len(points) <= most:
        return list(points)
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(points) - 1}
    for place in range(stretches):
        part = range(
            place * len(points) // stretches, max(1, (place + 1) * len(points) // stretches)
        )
        kept.add(min(part, key=lambda at: points[at][1]))
        kept.add(max(part, key=lambda at: points[at][1]))
    return [points[at] for at in sorted(kept)]
