"""The row of calls as a user makes them, one after the other, against the same work as one graph.

Where Python takes longer over a call than the device, it is Python that is timed. So the row also
has how long it takes over each pass, and two functions that compute nothing: one that does nothing
else, and one that keeps Python busy for as long as our own. What these take beyond their work is
PyTorch's. All of it once more with autograd in the caller's thread: it has a thread of its own for
every device, which has to be woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....measure import Size
from ....patterns import Window
from ..contenders import Bench, Variant, Work, gradient_of, inputs, ours
from ..peers import FLEX, flex_pattern
from ..records import Entry, Figure, Result, Taken
from ..timing import Failure
from .learned import bell
from .row import Row, size_fields
from .windows import REACH

__all__ = ["eager_row"]

TIMES = 100
TARGET = 1.5
WINDOW = "window"
NOTHING = "a function that computes nothing"
BUSY = "a function that keeps Python busy for as long as the window does"


def eager_row() -> Row:
    title = f"{TIMES} forward and backward calls one after the other, against one graph of them"

    def run(bench: Bench) -> Result:
        size = bench.size()
        kinds: dict[str, Sequence[Variant]] = {
            WINDOW: ours(bench, size, Window(REACH, REACH)),
            "learned": ours(bench, size, weight=bell("independent", size, bench.device)),
        }
        if bench.peers:
            kinds[FLEX] = flex_pattern(bench, size, Window(REACH, REACH))
        times = 10 if bench.quick else TIMES
        entries = {
            name: _timed(bench, name, variant.make(), times) for name, (variant,) in kinds.items()
        }
        entries[NOTHING] = _waited(bench, NOTHING, size, times, Busy())
        spent = _spent(entries[WINDOW], entries[NOTHING])
        entries[BUSY] = _waited(bench, BUSY, size, times, spent)
        figures = [own for name in kinds for own in _against_graph(entries[name])]
        return Result(
            row="eager",
            title=title,
            size=size_fields(size),
            entries=list(entries.values()),
            figures=figures + [own for entry in entries.values() for own in _on_host(entry)],
        )

    return Row(name="eager", title=title, run=run)


def _one_thread() -> AbstractContextManager[Any]:
    return torch.autograd.set_multithreading_enabled(False)


def _timed(bench: Bench, name: str, work: Work, times: int) -> Entry:
    calls = work.calls()
    watch, step = bench.watch, calls["step"]()
    passes = {"eager": watch.in_a_row(step, times)}
    graph = watch.as_one_graph(step, times)
    if isinstance(graph, Taken):
        passes["graph"] = graph
    with _one_thread():
        passes["eager, one thread"] = watch.in_a_row(step, times)
    for which in ("forward", "backward"):
        passes[f"host, {which}"] = watch.on_host(calls[which](), times)
    passes["host, forward inside of steps"] = _inside(work, times)
    with _one_thread():
        passes["host, forward inside of steps, one thread"] = _inside(work, times)
        passes["host, backward, one thread"] = watch.on_host(calls["backward"](), times)
    watch.free()
    return Entry(name=name, passes=passes, note=graph.reason if isinstance(graph, Failure) else "")


def _inside(work: Work, times: int) -> Taken:
    """How long forwards take the host where backwards come between them."""
    mask = work.made()
    grad = gradient_of(work.attend(mask))
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        out = work.attend(mask)
        taken.append(1e6 * (time.perf_counter() - begin))
        torch.autograd.grad(out, work.leaves, grad)
    return Taken.of(taken, "host")


def _against_graph(entry: Entry) -> list[Figure]:
    graph = entry.passes.get("graph")
    target = None if entry.name == FLEX else TARGET
    return [
        Figure(
            what=f"{entry.name}: {what} against the graph",
            unit="× the time",
            value=None if graph is None else entry.passes[which].median / graph.median,
            target=target,
            at_least=False,
            note=entry.note,
        )
        for what, which in (("eager", "eager"), ("eager in one thread", "eager, one thread"))
    ]


def _on_host(entry: Entry) -> list[Figure]:
    return [
        Figure(
            what=f"{entry.name}: {name.removeprefix('host, ')}, host time",
            unit="µs",
            value=taken.median,
            at_least=False,
        )
        for name, taken in entry.passes.items()
        if name.startswith("host, ")
    ]


class Busy(NamedTuple):
    """Seconds that Python is kept busy in each pass."""

    forward: float = 0.0
    backward: float = 0.0


def _spent(ours: Entry, nothing: Entry) -> Busy:
    """How long our own call keeps Python busy, beyond one that computes nothing."""
    of_torch = nothing.passes["host, step, one thread"].median / 2
    passes = (ours.passes[name].median for name in ("host, forward", "host, backward, one thread"))
    return Busy(*(1e-6 * max(taken - of_torch, 0.0) for taken in passes))


def _waited(bench: Bench, name: str, size: Size, times: int, busy: Busy) -> Entry:
    """Steps of an attention that computes nothing."""
    leaves = inputs(size, bench.device)
    work = Work(attend=lambda _: _Nothing.apply(*leaves, busy), leaves=leaves)
    step: Callable[[], object] = work.calls()["step"]()
    passes = {"host, step": bench.watch.on_host(step, times)}
    with _one_thread():
        passes["host, step, one thread"] = bench.watch.on_host(step, times)
    bench.watch.free()
    return Entry(name=name, passes=passes)


class _Nothing(torch.autograd.Function):
    """An attention that makes its results and writes nothing into them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, busy: Busy) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.busy = busy
        _spin(busy.forward)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _spin(ctx.busy.backward)
        return (*(torch.empty_like(x) for x in ctx.saved_tensors), None)


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
