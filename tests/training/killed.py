"""Runs that end in the middle: the process is killed when a line of metrics is written, a
checkpoint half written, or a rename just made.

Called with JSON, a list of runs: each a folder, the call to die in, and its number. Prints how each
of them ended. They are children of one process, which has loaded everything once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from longspan.training import RunConfig, Stage, checkpoint, records, train

from .tiny import LEARNED, Tiny, config_for, stage

Call = Callable[..., Any]


def stages() -> tuple[Stage, ...]:
    """Two, of which the second goes on with another window."""
    return (
        stage(name="first", steps=7, save_every=2, evaluate_every=3, cut=False),
        stage(
            name="second",
            steps=5,
            save_every=2,
            record_every=3,
            mechanism={"mean_reach": 4},
            optimizer="muon",
        ),
    )


def config(folder: Path) -> RunConfig:
    return config_for(folder, *stages(), mechanism=LEARNED, model={"dropout": 0.1})


def task() -> Any:
    return Tiny(objective="next", length=16)


def dying(own: Call, at: int) -> Call:
    """The same call, after whose `at`-th time nothing more happens."""
    calls = 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        found = own(*args, **kwargs)
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return called


PLACES: dict[str, tuple[Any, str]] = {
    "line": (records.Metrics, "write"),
    "rename": (records.Path, "replace"),
    "half": (checkpoint.Pair, "write"),
    "step": (torch.optim.AdamW, "step"),
}


def run(folder: str, where: str, at: int) -> None:
    owner, name = PLACES[where]
    setattr(owner, name, dying(getattr(owner, name), at))
    train(config(Path(folder)), resume=True, task=task())


def main() -> None:
    torch.set_num_threads(1)
    # What a first step would load, in each of them.
    import accelerate  # noqa: F401

    ends = []
    for folder, where, at in json.loads(sys.argv[1]):
        child = os.fork()
        if child == 0:
            try:
                run(folder, where, at)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ends.append(os.waitstatus_to_exitcode(status))
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
