"""One of two processes that train together: started with its number, a port and a folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from longspan.training import RunConfig, train

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
    options |= {"evaluate_every": 3, "save_every": 2, "record_every": 1, "eps": 1e-3}
    own = stage(steps=5, batch=batch, **options)
    return config_for(folder, own, mechanism=CASES[case].mechanism)


def task(case: str) -> Any:
    return Tiny(objective=CASES[case].objective)


def main() -> None:
    number, port, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    for case in CASES:
        train(config(folder / case, case, **CASES[case].each), task=task(case))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
