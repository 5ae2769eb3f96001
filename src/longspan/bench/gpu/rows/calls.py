"""Rows of what a call costs beside its kernels: launches, compiling."""

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

from ....functional import attention
from ....measure import Size, child_environment
from ....patterns import Pattern, Window
from ....weights import Weight
from ..contenders import Bench, inputs
from ..records import Entry, Figure, Result, Taken
from ..timing import Failure
from .learned import bell
from .row import Row, size_fields
from .windows import REACH

__all__ = ["KINDS", "first_call_row", "launches_row"]

# Weights that take turns: more than a call is made before and while its launches are counted.
NEW = 4
LONGEST_FIRST_CALL = 180.0  # seconds

# Calls by the name that `first_call` knows them by.
KINDS = ("window", "learned reach", "window and global tokens")


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
    """Seconds by pass for each kind, each in a process of its own, one after the other: a process
    compiles with as many threads as there are processors.
    """
    with tempfile.TemporaryDirectory() as folder:
        return {
            kind: _first_call(kind, device, backend, Path(folder) / str(number))
            for number, kind in enumerate(kinds)
        }


def _first_call(kind: str, device: str, backend: str, folder: Path) -> dict[str, float] | Failure:
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    caches = {name: str(folder / name) for name in names}
    asked = json.dumps([kind, device, backend])
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "longspan.bench.gpu.first_call", asked],
            capture_output=True,
            text=True,
            env=child_environment() | caches,
            timeout=LONGEST_FIRST_CALL,
        )
    except subprocess.TimeoutExpired:
        return Failure(f"it took more than {LONGEST_FIRST_CALL:.0f} s")
    if done.returncode:
        return Failure((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
