"""The stopwatch, on a device that is made up: its graphs replay calls, its events read a clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from longspan.bench.gpu.timing import CudaStopwatch, Failure


class Device:
    """Milliseconds pass when something runs: 1 to empty the cache, and what calls say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: Graph | None = None
        self.mode = 0
        self.emptied = 0
        self.watched: list[Callable[[], None]] = []

    def spend(
        self, milliseconds: float, *, waits: bool = False, uncapturable: bool = False
    ) -> None:
        if waits and self.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if uncapturable and self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        if self.capturing is not None:
            self.capturing.milliseconds += milliseconds
        else:
            self.now += milliseconds

    def zero_(self) -> None:
        self.emptied += 1
        self.now += 1.0


class Graph:
    def __init__(self, device: Device) -> None:
        self.device, self.milliseconds = device, 0.0

    def replay(self) -> None:
        for watched in self.device.watched:
            watched()
        # Python's share of the time is not in a graph.
        self.device.now += self.milliseconds / 2


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.at = self.device.now

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()

    @contextmanager
    def graph(captured: Graph, stream: object) -> Iterator[None]:
        found.capturing = captured
        try:
            yield
        finally:
            found.capturing = None

    for name, value in {
        "Stream": lambda: "side stream",
        "Event": lambda enable_timing: Event(found),
        "CUDAGraph": lambda: Graph(found),
        "graph": graph,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "get_sync_debug_mode": lambda: found.mode,
        "set_sync_debug_mode": lambda mode: setattr(found, "mode", mode),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: SimpleNamespace(zero_=found.zero_))
    return found


def call(device: Device, milliseconds: float, **kinds: bool) -> Callable[[], Callable[[], object]]:
    return lambda: lambda: device.spend(milliseconds, **kinds)


def test_graphs_are_timed_where_a_call_can_be_captured(device: Device) -> None:
    watch = CudaStopwatch(rounds=2, milliseconds=8.0)

    def broken() -> Callable[[], object]:
        raise ValueError("no such kernel")

    found = watch.race(
        {
            "graph": call(device, 2.0),
            "waits": call(device, 4.0, waits=True),
            "uncapturable": call(device, 2.0, uncapturable=True),
            "broken": broken,
        }
    )
    assert list(found) == ["graph", "waits", "uncapturable", "broken"]
    # 1 ms a replay, 8 in each of 2 turns; emptying the cache is not counted.
    assert found["graph"] == (1000.0, 1000.0, 1000.0, 16, "graph")
    # At least three in a turn.
    assert found["waits"] == (4000.0, 4000.0, 4000.0, 6, "eager")
    assert found["uncapturable"] == (2000.0, 2000.0, 2000.0, 8, "eager")
    assert found["broken"] == Failure("ValueError: no such kernel")
    assert device.mode == 0
    assert device.emptied == 16 + 6 + 8 + 3 * 3


def test_a_race_can_be_eager_for_all(device: Device) -> None:
    found = CudaStopwatch().race({"a": call(device, 2.0)}, capture=False)
    taken = found["a"]
    assert not isinstance(taken, Failure)
    assert taken.how == "eager" and taken.median == 2000.0


def test_what_a_graph_reads_is_kept_while_it_is_replayed(device: Device) -> None:
    class Held:
        pass

    alive = []

    def make() -> Callable[[], object]:
        held = Held()
        known = weakref.ref(held)

        def run() -> None:
            assert isinstance(held, Held)
            device.spend(2.0)

        device.watched.append(lambda: alive.append(known() is not None))
        return run

    CudaStopwatch().race({"a": make})
    assert alive and all(alive)


def test_an_error_that_is_not_about_waiting_is_not_taken_for_it(device: Device) -> None:
    def make() -> Callable[[], object]:
        def run() -> None:
            if device.mode == "error":
                raise RuntimeError("out of memory")

        return run

    found = CudaStopwatch().race({"a": make})
    assert found["a"] == Failure("RuntimeError: out of memory")
    assert device.mode == 0


def test_calls_in_a_row_are_compared_with_one_graph_of_them(device: Device) -> None:
    eager = CudaStopwatch().in_a_row(lambda: device.spend(0.2), 10)
    graph = CudaStopwatch().as_one_graph(lambda: device.spend(0.2), 10)
    assert not isinstance(graph, Failure)
    assert eager.median == pytest.approx(200.0) and eager.how == "eager"
    assert graph.median == pytest.approx(100.0) and graph.how == "graph"
    assert device.emptied == 0


def test_the_time_on_the_host_does_not_wait_for_the_device(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes 30 µs a call; the device takes 5 ms more for all of them."""
    clock = {"now": 0.0}

    def run() -> None:
        clock["now"] += 30e-6

    def synchronize() -> None:
        clock["now"] += 5e-3

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr("time.perf_counter", lambda: clock["now"])
    taken = CudaStopwatch(rounds=4).on_host(run, 100)
    assert taken.median == pytest.approx(30.0)
    assert taken.how == "host" and taken.rounds == 4


def test_a_row_that_cannot_be_captured_is_told(device: Device) -> None:
    eager = CudaStopwatch().in_a_row(lambda: device.spend(0.2, uncapturable=True), 10)
    graph = CudaStopwatch().as_one_graph(lambda: device.spend(0.2, uncapturable=True), 10)
    assert eager.median == pytest.approx(200.0)
    assert isinstance(graph, Failure) and "capturing" in graph.reason


@pytest.mark.gpu
def test_a_backward_is_captured_on_a_real_device() -> None:
    watch = CudaStopwatch(rounds=2, milliseconds=1.0)
    with watch.running():
        x = torch.randn(512, 512, device="cuda", requires_grad=True)
        out = (x @ x).relu()
        grad = torch.ones_like(out)
        found = watch.race(
            {
                "forward": lambda: lambda: x @ x,
                "backward": lambda: lambda: torch.autograd.grad(out, x, grad, retain_graph=True),
                "waits": lambda: lambda: x.sum().item(),
            }
        )
        names = watch.launches(lambda: x.detach() * 2)
    assert [t.how for t in found.values() if not isinstance(t, Failure)] == [
        "graph",
        "graph",
        "eager",
    ]
    assert names.total() == 1


def test_a_chain_of_errors_is_told_in_one_clause() -> None:
    class InductorError(Exception):
        pass

    error = InductorError(
        "LoweringException: NoValidChoicesError: No choices to select. Provided reason: none\n"
        "  target: flex_attention_backward"
    )
    assert Failure.of(error) == Failure("NoValidChoicesError: No choices to select")
    assert Failure.of(ValueError("")) == Failure("ValueError: ")
    assert len(Failure.of(ValueError("x" * 500)).reason) == 120
