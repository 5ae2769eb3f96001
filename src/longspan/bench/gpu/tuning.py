"""Which launch options make each kernel fastest: every candidate is compiled and timed.

The kernels read theirs in `kernels/triton/configs.py`; what is found here is printed as it has to
stand there, and put there by hand, after a look at it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...kernels.triton import hopper
from ...kernels.triton.configs import override
from ...measure import Size, child_environment
from ...patterns import Window
from ..records import write_json
from .candidates import KERNELS, Group, Options, candidates_of, groups, pasted
from .contenders import Bench, Work, ours
from .records import Taken
from .rows.learned import bell
from .rows.patterns import first_tokens
from .rows.windows import REACH
from .runner import need_gpu, setting
from .timing import Call, CudaStopwatch, Failure, Stopwatch

__all__ = ["timed", "tune"]

DROPOUT = 0.1

# Processes that compile, and how long they may take.
MOST_WORKERS = 12
LONGEST = 400.0

HOW = (
    "Put these into src/longspan/kernels/triton/configs.py, run the contract suite "
    "(make test-gpu), and measure again: python -m longspan.bench.gpu -o DIR"
)


def tune(
    path: Path,
    *,
    quick: bool = False,
    budget: float | None = None,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Times every candidate of every group on the current CUDA device, and writes the best.

    Args:
        path: of the table, JSON, written anew after every group.
        quick: one head size, one kind of call.
        budget: seconds after which no group begins.
        say: told each finding.
    """
    need_gpu()
    start = time.perf_counter()
    workers = max(1, min(MOST_WORKERS, (os.cpu_count() or 2) - 2))
    chosen = groups(quick, _has_hopper())
    say(
        f"compiling {sum(len(candidates_of(g)) for g in chosen)} candidates of {len(chosen)} groups"
    )
    _compile_ahead(quick, workers, LONGEST if budget is None else budget / 2)
    watch = CudaStopwatch(rounds=3, milliseconds=5.0)
    bench = _bench(watch)
    name = torch.cuda.get_device_name()
    found: list[dict[str, Any]] = []
    with watch.running():
        for group in chosen:
            if budget is not None and time.perf_counter() - start > budget:
                say(f"not begun: {group}")
                continue
            found.append(timed(bench, group))
            say(_told(found[-1]))
            write_json(
                path,
                {
                    "setting": setting(name, quick),
                    "how": HOW,
                    "configs": pasted(found).splitlines(),
                    "groups": found,
                },
            )
            watch.free()
    say(f"saved {path}. {HOW}\n\n{pasted(found)}")
    return found


def _has_hopper() -> bool:
    return hopper.available(torch.device("cuda", torch.cuda.current_device()))


def timed(
    bench: Bench, group: Group, candidates: Sequence[Options] | None = None
) -> dict[str, Any]:
    """Times the candidates of a group, and the options as they are, in turn. Those that the device
    has no room for cannot be launched, and are recorded with the reason.

    A kernel of the backward is timed with the other one as it is: only differences count.
    """
    work = _work(bench, group)
    make = work.calls()[KERNELS[group.kernel]]
    calls: dict[str, Call] = {"as it is": make}
    tried = candidates_of(group) if candidates is None else candidates
    named = {_name(options): options for options in tried}
    for name, options in named.items():
        calls[name] = _with_options(make, group.overridden, options)
    taken = bench.watch.race(calls)
    good = {name: t for name, t in taken.items() if isinstance(t, Taken)}
    best = min(good, key=lambda name: good[name].median) if good else None
    refused = [t.reason for name, t in taken.items() if name in named and isinstance(t, Failure)]
    return {
        **group._asdict(),
        "pass": KERNELS[group.kernel],
        "as it is": good["as it is"].median if "as it is" in good else None,
        "best": None if best is None else named.get(best, "as it is"),
        "microseconds": None if best is None else good[best].median,
        "refused": dict(Counter(reason.partition(":")[0] for reason in refused)),
        "all": {name: t.median if isinstance(t, Taken) else t.reason for name, t in taken.items()},
    }


def _with_options(make: Call, kernel: str, options: Options) -> Call:
    """A call that launches one kernel with other options, from its first run on."""

    def ready() -> Callable[[], object]:
        call = make()

        def run() -> None:
            with override(kernel, options):
                call()

        return run

    return ready


def _work(bench: Bench, group: Group) -> Work:
    size: Size = bench.size(head_dim=group.head_dim)
    window = Window(REACH, REACH)
    if group.kind == "learned":
        (variant,) = ours(bench, size, weight=bell("independent", size, bench.device))
    elif group.kind == "dropout":
        (variant,) = ours(bench, size, window, dropout=DROPOUT)
    elif group.kind == "global":
        (variant,) = ours(bench, size, first_tokens(size, bench.device))
    else:
        (variant,) = ours(bench, size, window)
    return variant.make()


def _bench(watch: Stopwatch) -> Bench:
    return Bench(watch=watch, device=torch.device("cuda"))


def _compile_ahead(quick: bool, workers: int, seconds: float) -> None:
    """Fills Triton's cache in processes of their own, since compiling takes one thread each."""
    command = [sys.executable, "-W", "ignore", "-m", "longspan.bench.gpu.tuning"]
    running = [
        subprocess.Popen(
            [*command, str(number), str(workers), str(int(quick))],
            env=child_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(workers)
    ]
    end = time.perf_counter() + seconds
    for process in running:
        try:
            process.wait(timeout=max(1.0, end - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compile_share(bench: Bench, number: int, of: int, quick: bool) -> None:
    """Runs every `of`-th candidate once. One that cannot be compiled is left for the timing to
    report.
    """
    for group in groups(quick, _has_hopper()):
        make = _work(bench, group).calls()[KERNELS[group.kernel]]
        for options in candidates_of(group)[number::of]:
            try:
                _with_options(make, group.overridden, options)()()
            except Exception:  # the timing meets it again, and records it
                continue


def _name(options: Options) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


def _told(found: dict[str, Any]) -> str:
    group = str(Group(*(found[name] for name in Group._fields)))
    refused = "".join(f"; {count} refused: {why}" for why, count in found["refused"].items())
    if found["microseconds"] is None:
        return f"{group}: nothing ran{refused}"
    before = "—" if found["as it is"] is None else f"{found['as it is']:.1f}"
    best = found["best"] if isinstance(found["best"], str) else _name(found["best"])
    return (
        f"{group}: {found['pass']} {before} → {found['microseconds']:.1f} µs with {best}{refused}"
    )


if __name__ == "__main__":
    share, shares, short = map(int, sys.argv[1:])
    compile_share(_bench(CudaStopwatch()), share, shares, bool(short))
