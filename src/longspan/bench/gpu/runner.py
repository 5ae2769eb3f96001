"""Runs rows one after the other, and keeps what there is after each."""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .ahead import LONGEST, compile_ahead
from .contenders import Bench
from .floor import card_of
from .records import Report, Result, save
from .rows import ROWS, Row
from .timing import CudaStopwatch, Failure

__all__ = ["chosen", "measure", "need_gpu", "run_rows", "setting"]

# A row's result, and the seconds that the run has taken so far.
Told = Callable[[Result, float], None]


def need_gpu() -> None:
    """Raises unless there is a CUDA device."""
    if not torch.cuda.is_available():
        raise ValueError(
            "this benchmark needs an NVIDIA GPU, and PyTorch finds none "
            "(torch.cuda.is_available() is False)"
        )


def chosen(names: Iterable[str] | None) -> list[Row]:
    """Rows by name, in the order of their importance; all when None."""
    asked = list(ROWS) if names is None else list(names)
    for name in asked:
        if name not in ROWS:
            raise ValueError(f"there is no row {name!r}: choose one of {', '.join(ROWS)}")
    return [row for name, row in ROWS.items() if name in asked]


def measure(
    names: Iterable[str] | None = None,
    *,
    quick: bool = False,
    peers: bool = True,
    budget: float | None = None,
    path: Path | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_result: Told = lambda result, total: None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Measures rows on the current CUDA device.

    Args:
        names: of `ROWS`; all when None.
        quick: small inputs and few rounds.
        peers: whether to time them too.
        budget: seconds after which no row begins, with those of compiling ahead; that takes half
            of them at most.
        path: of the record, which is written anew after every row.
        on_row: told each row as it begins.
        on_result: told what it found, and the seconds so far.
        say: told of compiling ahead.
    """
    start = time.perf_counter()
    rows = chosen(names)
    need_gpu()
    watch = CudaStopwatch(rounds=2, milliseconds=2.0) if quick else CudaStopwatch()
    name = torch.cuda.get_device_name()
    bench = Bench(
        watch=watch,
        device=torch.device("cuda", torch.cuda.current_device()),
        card=card_of(name),
        peers=peers,
        quick=quick,
    )
    most = LONGEST if budget is None else min(LONGEST, budget / 2)
    ahead = compile_ahead(rows, bench, seconds=most, say=say)
    with watch.running():
        return run_rows(
            rows,
            bench,
            setting(name, quick) | {"seconds_compiling_ahead": round(ahead, 1)},
            budget=budget,
            start=start,
            path=path,
            on_row=on_row,
            on_result=on_result,
        )


def run_rows(
    rows: Iterable[Row],
    bench: Bench,
    at: dict[str, Any],
    *,
    budget: float | None = None,
    start: float | None = None,
    path: Path | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_result: Told = lambda result, total: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """Runs rows on a bench; one that fails is recorded with its reason, and the next one begins.

    Seconds are counted from `start`, by the same clock; from now when None.
    """
    report = Report(setting=at)
    start = clock() if start is None else start
    for row in rows:
        begin = clock()
        if budget is not None and begin - start >= budget:
            left = f"not begun: the budget of {budget:g} s was spent"
            result = Result(row=row.name, title=row.title, missing=left)
        else:
            on_row(row)
            try:
                result = row.run(bench)
            except Exception as error:
                result = Result(row=row.name, title=row.title, missing=Failure.of(error).reason)
            result = replace(result, seconds=clock() - begin)
            # What the row has used is gone before the next begins.
            gc.collect()
            bench.watch.free()
        report.results.append(result)
        on_result(result, begin - start + result.seconds)
        if path is not None:
            save(report, path)
    return report


def setting(card: str, quick: bool) -> dict[str, Any]:
    """What a reader needs to compare figures with those of another run."""
    return {
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "card": card,
        "quick": quick,
        "dtype": "bfloat16",
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "capability": list(torch.cuda.get_device_capability()) if torch.cuda.is_available() else [],
        "versions": {
            name: _version(name) for name in ("longspan", "torch", "triton", "transformers")
        },
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
