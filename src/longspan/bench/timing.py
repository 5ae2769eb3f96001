"""Times of calls that take turns.

One thread is timed by the CPU time of this process, which other processes do not add to; several by
the clock on the wall, since CPU time would add them up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .records import Sample

__all__ = ["Effort", "interleaved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How long to go on.

    Attributes:
        rounds: at most; in a round every call has one turn.
        least: rounds that are run whatever they take.
        seconds: after which no round begins.
        long: seconds; what takes longer has half of `least` rounds, at least one: such a call is
            an average of many moments by itself.
    """

    rounds: int = 9
    least: int = 5
    seconds: float = 15.0
    long: float = 4.0


def interleaved(
    calls: Mapping[str, Callable[[], None]],
    effort: Effort,
    *,
    wall: bool = False,
    on_turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Sample]:
    """Times calls in turn, round after round, after one turn each that is not counted.

    Args:
        calls: by name.
        effort: how long to go on.
        wall: by the clock on the wall instead of the CPU time of this process.
        on_turn: told the name before each turn.
    """
    clock = time.perf_counter if wall else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    slow = set()
    for name, call in calls.items():
        on_turn(name)
        begin = time.perf_counter()
        call()
        if time.perf_counter() - begin > effort.long:
            slow.add(name)
    for done in range(effort.rounds):
        if done >= effort.least and time.perf_counter() - start > effort.seconds:
            break
        for name, call in calls.items():
            if name in slow and done >= max(1, effort.least // 2):
                continue
            on_turn(name)
            begin = clock()
            call()
            seconds[name].append(clock() - begin)
    return {name: Sample.of(taken) for name, taken in seconds.items()}
