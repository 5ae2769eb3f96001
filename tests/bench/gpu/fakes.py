"""A stopwatch for a machine without a GPU: it runs calls, and makes their times up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch

from longspan.bench.gpu.contenders import Bench
from longspan.bench.gpu.floor import CARDS
from longspan.bench.gpu.records import Taken
from longspan.bench.gpu.timing import Call, Failure


class FakeStopwatch:
    """Every call runs once. The n-th call ever made takes n·100 µs, unless `times` says otherwise.

    Attributes:
        times: microseconds of calls whose name contains the key.
        raced: what was timed, race by race.
    """

    def __init__(self, times: Mapping[str, float] | None = None, run: bool = True) -> None:
        self.times = dict(times or {})
        self.run = run
        self.raced: list[list[str]] = []
        self.captured: list[bool] = []
        self.calls = 0
        self.freed = 0

    def race(
        self, calls: Mapping[str, Call], *, capture: bool = True
    ) -> dict[str, Taken | Failure]:
        self.raced.append(list(calls))
        self.captured.append(capture)
        return {name: self._timed(name, make, capture) for name, make in calls.items()}

    def _timed(self, name: str, make: Call, capture: bool) -> Taken | Failure:
        try:
            if self.run:
                make()()
        except Exception as error:
            return Failure.of(error)
        self.calls += 1
        known = [value for part, value in self.times.items() if part in name]
        middle = known[0] if known else 100.0 * self.calls
        return Taken(middle, 0.9 * middle, 1.1 * middle, 8, "graph" if capture else "eager")

    def in_a_row(self, call: Callable[[], object], times: int) -> Taken:
        call()
        return Taken.of([150.0, 160.0, 140.0], "eager")

    def as_one_graph(self, call: Callable[[], object], times: int) -> Taken | Failure:
        call()
        return Taken.of([100.0, 110.0, 90.0])

    def on_host(self, call: Callable[[], object], times: int) -> Taken:
        call()
        return Taken.of([30.0, 40.0, 20.0], "host")

    def launches(self, call: Callable[[], object]) -> Counter[str]:
        call()
        self.calls += 1
        return Counter({"kernel": 2, "reach": self.calls % 2})

    def free(self) -> None:
        self.freed += 1


def bench(watch: FakeStopwatch | None = None, *, peers: bool = False) -> Bench:
    """Small inputs on the CPU, by whichever backend takes them."""
    return Bench(
        watch=watch or FakeStopwatch(),
        device=torch.device("cpu"),
        card=CARDS["H200"],
        backend="auto",
        peers=peers,
        quick=True,
        compiled=False,
    )
