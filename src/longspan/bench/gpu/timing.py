"""Times on a GPU: captured graphs, replayed in turn with an emptied cache.

A graph leaves out what Python does before a launch, which for short kernels takes longer than the
kernels. The cache between the multiprocessors and the memory (L2) is emptied before every call, as
it is by what else a training step does.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch

from ..capturing import captured
from .records import How, Taken

__all__ = ["Call", "CudaStopwatch", "Failure", "Stopwatch"]

# What is made ready when its turn comes, and then timed.
Call = Callable[[], Callable[[], object]]

SCRATCH = 256 << 20  # bytes: several times any cache
LONGEST_REASON = 120

# An error inside an error inside an error: the last says what is wrong.
CHAIN = re.compile(r"^(?:\w+(?:Error|Exception): )+(?=\w+(?:Error|Exception): )")


class Failure(NamedTuple):
    """Why a call could not be timed."""

    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The first sentence that says something, with the name of the innermost error."""
        while "previous error" in str(error) and error.__context__ is not None:
            error = error.__context__
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = lines[0].partition(". ")[0] if lines else ""
        return cls(CHAIN.sub("", f"{type(error).__name__}: {first}")[:LONGEST_REASON])


class Stopwatch(Protocol):
    """What the rows ask of a device; a test gives one that only counts."""

    def race(
        self, calls: Mapping[str, Call], *, capture: bool = True
    ) -> dict[str, Taken | Failure]:
        """Times calls that take turns.

        Args:
            calls: by name.
            capture: whether to try a graph; a call that cannot be captured is timed eagerly.
        """
        ...

    def in_a_row(self, call: Callable[[], object], times: int) -> Taken:
        """One of `times` calls, made one after the other."""
        ...

    def as_one_graph(self, call: Callable[[], object], times: int) -> Taken | Failure:
        """One of `times` calls that are one graph."""
        ...

    def on_host(self, call: Callable[[], object], times: int) -> Taken:
        """One of `times` calls as Python sees them: until it returns, whatever the device does."""
        ...

    def launches(self, call: Callable[[], object]) -> Counter[str]:
        """What a call starts on the device, by name."""
        ...

    def free(self) -> None:
        """Gives back what earlier calls left behind."""
        ...


class _Ready(NamedTuple):
    """What takes turns. A graph reads the memory that its call was captured with, so the call is
    kept, with all that it holds.
    """

    run: Callable[[], object]
    how: How
    repeats: int
    call: Callable[[], object]


class CudaStopwatch:
    """The stopwatch of the current CUDA device.

    Everything has to run inside `running()`: the backward of a call runs on the stream of its
    forward, and only one that is not the default stream can be captured.

    Args:
        rounds: in which every call of a race has a turn.
        milliseconds: for which a call is repeated in a turn.
    """

    def __init__(self, *, rounds: int = 4, milliseconds: float = 15.0) -> None:
        self.rounds, self.milliseconds = rounds, milliseconds
        self.stream = torch.cuda.Stream()
        self.scratch = torch.empty(SCRATCH, dtype=torch.int8, device="cuda")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes the stream on which calls are captured the current one."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.synchronize()

    def race(
        self, calls: Mapping[str, Call], *, capture: bool = True
    ) -> dict[str, Taken | Failure]:
        ready: dict[str, _Ready] = {}
        found: dict[str, Taken | Failure] = {}
        for name, make in calls.items():
            # A peer's compiler fails in ways of its own, and the others can still be timed.
            try:
                ready[name] = self._ready(make(), capture)
            except Exception as error:
                found[name] = Failure.of(error)
        times: dict[str, list[float]] = {name: [] for name in ready}
        for _ in range(self.rounds):
            for name, one in ready.items():
                times[name] += self._turn(one.run, one.repeats)
        for name, one in ready.items():
            found[name] = Taken.of(times[name], one.how)
        return {name: found[name] for name in calls}

    def in_a_row(self, call: Callable[[], object], times: int) -> Taken:
        every = _repeated(call, times)
        every()
        return Taken.of(self._each(every, times), "eager")

    def as_one_graph(self, call: Callable[[], object], times: int) -> Taken | Failure:
        every = _repeated(call, times)
        every()
        try:
            graph = self._captured(every)
        except Exception as error:
            return Failure.of(error)
        return Taken.of(self._each(graph.replay, times))

    def on_host(self, call: Callable[[], object], times: int) -> Taken:
        found = []
        for _ in range(1 + self.rounds):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(times):
                call()
            found.append(1e6 * (time.perf_counter() - begin) / times)
        torch.cuda.synchronize()
        return Taken.of(found[1:], "host")

    def launches(self, call: Callable[[], object]) -> Counter[str]:
        from torch.profiler import ProfilerActivity, profile

        call()
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        return Counter(
            event.name
            for event in seen.events()
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
        )

    def free(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def _ready(self, call: Callable[[], object], capture: bool) -> _Ready:
        """A call that has compiled whatever it compiles, as a graph where that can be."""
        call()
        call()
        torch.cuda.synchronize()
        if capture and not self._waits(call):
            try:
                replay = self._captured(call).replay
                return _Ready(replay, "graph", self._repeats(replay), call)
            except RuntimeError:
                torch.cuda.synchronize()
        return _Ready(call, "eager", self._repeats(call), call)

    def _waits(self, call: Callable[[], object]) -> bool:
        """Whether a call waits for the device: it cannot be captured, and trying would leave the
        allocator in the middle of a capture.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this check a prototype
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            try:
                call()
            except RuntimeError as error:
                if "synchroniz" not in str(error):
                    raise
                return True
            finally:
                torch.cuda.set_sync_debug_mode(before)
        return False

    def _captured(self, call: Callable[[], object]) -> Any:
        return captured(call, self.stream)

    def _repeats(self, run: Callable[[], object]) -> int:
        each = min(self._turn(run, 3)) / 1e3
        return max(3, min(100, int(self.milliseconds / max(each, 1e-3))))

    def _turn(self, run: Callable[[], object], repeats: int) -> list[float]:
        """Microseconds of calls, each after the cache was emptied. Emptying it takes longer than
        Python takes to start a graph, so that the device never waits for Python in between.
        """
        starts, ends = _events(repeats), _events(repeats)
        for start, end in zip(starts, ends, strict=True):
            self.scratch.zero_()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [1e3 * s.elapsed_time(e) for s, e in zip(starts, ends, strict=True)]

    def _each(self, run: Callable[[], object], times: int) -> list[float]:
        """Microseconds of one of `times` calls, over some rounds."""
        found = []
        for _ in range(1 + self.rounds):
            (start,), (end,) = _events(1), _events(1)
            torch.cuda.synchronize()
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            found.append(1e3 * start.elapsed_time(end) / times)
        return found[1:]


def _repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    def every() -> None:
        for _ in range(times):
            call()

    return every


def _events(count: int) -> list[Any]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]
