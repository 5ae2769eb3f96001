"""Rows of what a call costs beside its kernels: Python, launches, compiling."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....functional import attention
from ....measure import Size, child_environment
from ....patterns import Pattern, Window
from ....weights import Weight
from ..contenders import Bench, Variant, Work, inputs, ours
from ..peers import FLEX, flex_pattern
from ..records import Entry, Figure, Result, Taken
from ..timing import Failure
from .learned import bell
from .row import Row, size_fields
from .windows import REACH

__all__ = ["KINDS", "eager_row", "first_call_row", "launches_row"]

TIMES = 100
NOTHING = "a function that computes nothing"
# Weights that take turns: more than a call is made before and while its launches are counted.
NEW = 4
LONGEST_FIRST_CALL = 180.0  # seconds

# Calls by the name that `first_call` knows them by.
KINDS = ("window", "learned reach", "window and global tokens")


def eager_row() -> Row:
    """Calls one after the other, as a user makes them, against the same work as one graph; and how
    long Python takes over each pass, without waiting for the device. Beside them the same with
    autograd in the caller's thread, and what remains of a call that computes nothing: PyTorch's own
    share.
    """
    title = f"{TIMES} forward and backward calls one after the other, against one graph of them"

    def run(bench: Bench) -> Result:
        size = bench.size()
        kinds: dict[str, Sequence[Variant]] = {
            "window": ours(bench, size, Window(REACH, REACH)),
            "learned": ours(bench, size, weight=bell("independent", size, bench.device)),
        }
        if bench.peers:
            kinds[FLEX] = flex_pattern(bench, size, Window(REACH, REACH))
        times = 10 if bench.quick else TIMES
        entries, figures, on_host = [], [], []
        for name, (variant,) in kinds.items():
            calls = variant.make().calls()
            step = calls["step"]()
            eager = bench.watch.in_a_row(step, times)
            graph = bench.watch.as_one_graph(step, times)
            passes = {"eager": eager} | ({"graph": graph} if isinstance(graph, Taken) else {})
            # Autograd has a thread for every device, which has to be woken.
            with torch.autograd.set_multithreading_enabled(False):
                alone = bench.watch.in_a_row(step, times)
            passes["eager, one thread"] = alone
            for which in ("forward", "backward"):
                taken = bench.watch.on_host(calls[which](), times)
                passes[f"host, {which}"] = taken
                what = f"{name}: host time of a {which} call"
                on_host.append(Figure(what=what, unit="µs", value=taken.median, at_least=False))
            bench.watch.free()
            why = graph.reason if isinstance(graph, Failure) else ""
            entries.append(Entry(name=name, passes=passes, note=why))
            for what, taken, target in (
                ("eager", eager, None if name == FLEX else 1.5),
                ("eager in one thread", alone, None),
            ):
                figures.append(
                    Figure(
                        what=f"{name}: {what} against the graph",
                        unit="× the time",
                        value=taken.median / graph.median if isinstance(graph, Taken) else None,
                        target=target,
                        at_least=False,
                        note=why,
                    )
                )
        least = bench.watch.on_host(_nothing(bench, size).calls()["step"](), times)
        entries.append(Entry(name=NOTHING, passes={"host, step": least}))
        what = f"{NOTHING}: host time of a step"
        on_host.append(Figure(what=what, unit="µs", value=least.median, at_least=False))
        return Result(
            row="eager",
            title=title,
            size=size_fields(size),
            entries=entries,
            figures=figures + on_host,
        )

    return Row(name="eager", title=title, run=run)


class _Nothing(torch.autograd.Function):
    """An attention that makes its results and writes nothing into them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors)


def _nothing(bench: Bench, size: Size) -> Work:
    leaves = inputs(size, bench.device)
    return Work(attend=lambda _: _Nothing.apply(*leaves), leaves=leaves)


def launches_row() -> Row:
    """What a reach that changes with every call adds to the launches of a fixed window."""
    title = "launches of a call with a new reach, beyond those of a fixed window"

    def run(bench: Bench) -> Result:
        size = bench.size()
        figures = []
        for which, target in (("forward", 1.0), ("backward", None)):
            fixed = bench.watch.launches(_calling(bench, size, Window(REACH, REACH), None, which))
            new = bench.watch.launches(
                _calling(bench, size, None, bell("independent", size, bench.device), which)
            )
            counted = fixed.total() > 0  # none at all: the profiler saw nothing
            figures.append(
                Figure(
                    what=f"{which}: launches more",
                    unit="",
                    value=float(new.total() - fixed.total()) if counted else None,
                    target=target,
                    at_least=False,
                    note=f"{fixed.total()} and {new.total()}; {_more(new - fixed)}",
                )
            )
        return Result(row="launches", title=title, size=size_fields(size), figures=figures)

    return Row(name="launches", title=title, run=run)


def _calling(
    bench: Bench,
    size: Size,
    pattern: Pattern | None,
    weight: Callable[[], Weight] | None,
    which: str,
) -> Callable[[], object]:
    """A pass of a call, each time with a weight that was not there before: nothing that a call has
    kept from the last one is of use.
    """
    q, k, v = inputs(size, bench.device)
    backend: Any = bench.backend
    weights = [None if weight is None else weight() for _ in range(NEW)]
    if which == "forward":
        turns = cycle(weights)
        return lambda: attention(q, k, v, pattern, weight=next(turns), backend=backend)
    outs = []
    for given in weights:
        learned = () if given is None else tuple(getattr(given, name) for name in given.learned)
        outs.append(
            (attention(q, k, v, pattern, weight=given, backend=backend), (q, k, v, *learned))
        )
    grad = torch.randn_like(outs[0][0])
    again = cycle(outs)
    return lambda: torch.autograd.grad(*next(again), grad, retain_graph=True)


def _more(names: Counter[str]) -> str:
    shown = [f"{count} × {name[:40]}" for name, count in names.most_common(6)]
    return "only there: " + ", ".join(shown) if shown else "the same"


def first_call_row() -> Row:
    """Seconds of the first forward and backward of a kind, with nothing compiled yet."""
    title = "first call of a kind in a new process, with nothing compiled"

    def run(bench: Bench) -> Result:
        entries, figures = [], []
        for kind, found in first_calls(KINDS, str(bench.device), bench.backend).items():
            if isinstance(found, Failure):
                entries.append(Entry(name=kind, missing=found.reason))
            else:
                passes = {
                    which: Taken(*3 * (1e6 * seconds,), 1, "clock")
                    for which, seconds in found.items()
                }
                entries.append(Entry(name=kind, passes=passes))
            figures.append(
                Figure(
                    what=f"{kind}: forward and backward",
                    unit="s",
                    value=None if isinstance(found, Failure) else sum(found.values()),
                    target=10,
                    at_least=False,
                    note=found.reason if isinstance(found, Failure) else "",
                )
            )
        return Result(row="first-call", title=title, entries=entries, figures=figures)

    return Row(name="first-call", title=title, run=run)


def first_calls(
    kinds: Sequence[str], device: str, backend: str
) -> dict[str, dict[str, float] | Failure]:
    """Seconds by pass for each kind, each in a process of its own, all of them at once: a process
    compiles with one thread.
    """
    found: dict[str, dict[str, float] | Failure] = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = {}
        for number, kind in enumerate(kinds):
            caches = {
                name: str(Path(folder) / f"{number}-{name}")
                for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
            }
            asked = json.dumps([kind, device, backend])
            workers[kind] = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "longspan.bench.gpu.first_call", asked],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=child_environment() | caches,
            )
        for kind, worker in workers.items():
            try:
                out, err = worker.communicate(timeout=LONGEST_FIRST_CALL)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.communicate()
                found[kind] = Failure(f"it took more than {LONGEST_FIRST_CALL:.0f} s")
                continue
            if worker.returncode:
                last = (err.strip().splitlines() or ["it said nothing"])[-1]
                found[kind] = Failure(last)
            else:
                found[kind] = json.loads(out.strip().splitlines()[-1])
    return found
