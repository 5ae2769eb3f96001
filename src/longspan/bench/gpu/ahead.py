"""Compiles what rows need before they are measured: a row to a process, several at a time.

FlexAttention compiles for longer than it is timed, with one thread. A process runs every call of
its row once, which leaves what it compiled in the caches that the measuring process reads; one
that fails or takes too long has done no harm, since the row then compiles for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from ...measure import child_environment
from .contenders import Bench
from .records import Taken
from .rows import ROWS, Row
from .timing import Call, Failure

__all__ = ["Rehearsal", "compile_ahead", "rehearse"]

MOST_AT_ONCE = 14
LONGEST = 100.0


class Rehearsal:
    """A stopwatch that runs every call once, and says that it took a microsecond."""

    def race(
        self, calls: Mapping[str, Call], *, capture: bool = True
    ) -> dict[str, Taken | Failure]:
        return {name: self._once(make) for name, make in calls.items()}

    def in_a_row(self, call: Callable[[], object], times: int) -> Taken:
        return self.on_host(call, times)

    def as_one_graph(self, call: Callable[[], object], times: int) -> Taken | Failure:
        return self.on_host(call, times)

    def on_host(self, call: Callable[[], object], times: int) -> Taken:
        call()
        return Taken.of([1.0])

    def launches(self, call: Callable[[], object]) -> Counter[str]:
        call()
        return Counter()

    def free(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _once(self, make: Call) -> Taken | Failure:
        try:
            make()()
        except Exception as error:  # the measuring process meets it again, and records it
            return Failure.of(error)
        return Taken.of([1.0])


def compile_ahead(
    rows: Sequence[Row], bench: Bench, *, seconds: float = LONGEST, say: Callable[[str], None]
) -> float:
    """Rehearses rows whose peers compile, and returns the seconds that it took.

    Args:
        rows: that will be measured; others than those that compile are left out.
        bench: on which they will be.
        seconds: after which processes that still compile are stopped.
        say: told what happens.
    """
    named = [row.name for row in rows if row.compiles]
    if not bench.peers or len(named) < 2:
        return 0.0
    workers = max(1, min(MOST_AT_ONCE, (os.cpu_count() or 2) - 2))
    say(f"… compiling ahead for {len(named)} rows, {workers} at a time")
    begin = time.perf_counter()
    one = partial(_in_a_process, device=str(bench.device), quick=bench.quick, end=begin + seconds)
    with ThreadPoolExecutor(workers) as pool:
        done = dict(zip(named, pool.map(one, named), strict=True))
    took = time.perf_counter() - begin
    late = [name for name, well in done.items() if not well]
    more = f"; left to the rows themselves: {', '.join(late)}" if late else ""
    say(f"compiled ahead [{took:.0f} s]{more}")
    return took


def _in_a_process(name: str, *, device: str, quick: bool, end: float) -> bool:
    """Whether a row was rehearsed to its end."""
    left = end - time.perf_counter()
    if left <= 0:
        return False
    asked = json.dumps([name, device, quick])
    # Its own pool of compiling processes would only wait for those of the others.
    alone = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "longspan.bench.gpu.ahead", asked],
        env=child_environment() | alone,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(timeout=left) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def rehearse(name: str, device: torch.device, quick: bool) -> None:
    """Runs every call of a row once."""
    watch = Rehearsal()
    ROWS[name].run(Bench(watch=watch, device=device, quick=quick))


if __name__ == "__main__":
    row, where, small = json.loads(sys.argv[1])
    rehearse(row, torch.device(where), small)
