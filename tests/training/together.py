"""One of two processes that train together: started with its number, a port, a folder, and how
the model is there: "copied" or "split".
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from longspan.training import NotFiniteError, RunConfig, loop, train
from longspan.training.processes import part

from .tiny import LEARNED, SLIDING, Tiny, config_for, stage


class Case(NamedTuple):
    """What is learned with what; and how many examples each of two processes has a step."""

    objective: str
    mechanism: dict[str, Any]
    each: dict[str, int]


CASES = {
    # The running factor of causal windows follows every batch, so that a step has one.
    "learned": Case("next", LEARNED, {"batch": 6}),
    "sliding": Case("spans", SLIDING, {"batch": 3, "accumulate": 2}),
}


def config(folder: Path, case: str, batch: int, **options: Any) -> RunConfig:
    """Evaluated twice, so that processes have to share the examples. AdamW divides by the size of a
    gradient: without an eps above rounding it would follow the rounding of those that are 0.
    """
    fixed = {"evaluate_every": 3, "save_every": 2, "record_every": 1, "eps": 1e-3}
    own = stage(**{"steps": 5, "batch": batch, **fixed, **options})
    return config_for(folder, own, mechanism=CASES[case].mechanism)


def task(case: str) -> Any:
    return Tiny(objective=CASES[case].objective)


def apart(folder: Path) -> None:
    """What else a model that is split has to be able to do."""
    each = CASES["learned"].each
    for name, options in (("other", OTHER), ("muon", MUON)):
        train(config(folder / name, "learned", **each, **options), task=task("learned"))
    stopped(config(folder / "resumed", "learned", **each))
    train(config(folder / "resumed", "learned", **each), resume=True, task=task("learned"))
    # A weight that has a gradient in one process alone.
    train(config(folder / "uneven", "sliding", 3, **SHORT), task=Uneven(objective="spans"))
    try:
        wild = config(folder / "wild", "sliding", 3, learning_rate=1e30, **SHORT)
        train(wild, task=task("sliding"))
    except NotFiniteError as error:
        (folder / f"wild-{os.environ['RANK']}.txt").write_text(str(error))


SHORT: dict[str, Any] = {"steps": 2, "evaluate_every": None}
# Blocks that are computed again, and weights that are frozen.
OTHER: dict[str, Any] = {**SHORT, "checkpointing": True, "trains": "all but reach"}
MUON: dict[str, Any] = {**SHORT, "optimizer": "muon"}


class Uneven(Tiny):
    """What the second process learns from has no global token."""

    def batch(self, numbers: Any, split: str = "train") -> Any:
        found = super().batch(numbers, split)
        if split == "train" and os.environ.get("RANK") == "1":
            return replace(found, global_tokens=None)
        return found


def stopped(config: RunConfig) -> None:
    """Ends after step 3, of which there is no checkpoint."""
    step = loop.Stepper.step

    def last(self: loop.Stepper, number: int, batches: Any) -> Any:
        if number == 3:
            raise KeyboardInterrupt
        return step(self, number, batches)

    loop.Stepper.step = last  # type: ignore[method-assign]
    try:
        train(config, task=task("learned"))
    except KeyboardInterrupt:
        pass
    finally:
        loop.Stepper.step = step  # type: ignore[method-assign]


def main() -> None:
    number, port, folder, how = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    os.environ["ACCELERATE_USE_FSDP"] = "true" if how == "split" else "false"
    for case in CASES:
        train(config(folder / case, case, **CASES[case].each), task=task(case))
    if how == "split":
        apart(folder)
    part()
    # A thread that PyTorch leaves running can, rarely, abort a process that exits by itself. All
    # that was trained is written.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
