"""Peak memory of contenders, in a fresh process where freed memory goes back to the system at once:
what one has used is not there for the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import torch

from ..measure import child_environment
from ..memory import peak_growth
from .contenders import Contender, Unavailable
from .records import Outcome

__all__ = ["peaks"]

# Long enough for every contender, short enough to cost nothing: what the first call of a contender
# loads and starts is not a cost of the call.
SHORT = 512


def peaks(problem: str, contenders: tuple[Contender, ...], quick: bool) -> Iterator[Outcome]:
    """Runs the contenders of a problem, by its name, in turn; None is the peak where the system is
    not Linux.
    """
    environment = child_environment() | {"MALLOC_MMAP_THRESHOLD_": str(1 << 16)}
    environment.pop("MALLOC_TRIM_THRESHOLD_", None)
    code = "import sys; from longspan.bench.memory import _work; _work(sys.argv[1])"
    asked = json.dumps([problem, quick, torch.get_num_threads()])
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, asked],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with worker:
        assert worker.stdout is not None
        for contender in contenders:
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError(f"the process that measures memory ended at {contender.name!r}")
            yield Outcome(
                problem=problem,
                name=contender.name,
                length=contender.size.length,
                **json.loads(line),
            )


def _work(asked: str) -> None:
    """The other side of `peaks`: one line for every contender."""
    from .problems import PROBLEMS

    problem, quick, threads = json.loads(asked)
    torch.set_num_threads(threads)
    for contender in PROBLEMS[problem](quick).contenders:
        try:
            found = _peak(contender)
        except Unavailable as error:
            found = {"missing": str(error)}
        print(json.dumps(found), flush=True)


def _peak(contender: Contender) -> dict[str, int | str | None]:
    contender.make(replace(contender.size, length=SHORT)).with_gradients()()
    work = contender.make(contender.size)
    both = work.with_gradients()
    peak = peak_growth(both, torch.device("cpu"))
    if peak is None:
        return {"missing": "memory is measured on Linux only"}
    return {"peak": peak, "pairs": work.pairs, "tiles": work.tiles}
