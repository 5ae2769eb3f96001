"""What the way in which memory is allocated costs training on a CPU: the same run in fresh
processes, whose environment says how.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..measure import child_environment
from ..tasks.sample import sample
from ..training import RunConfig, Stage, train
from ..writing import write_text
from .machine import WARM, setting
from .records import write_json

__all__ = ["WAYS", "AllocatorReport", "Cost", "figures_table", "measure", "save"]

# Freed memory is kept, and in pages of 2 MiB, which are zeroed and looked up faster.
JEMALLOC = "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"

# Variables of the environment, by what they ask for.
WAYS: dict[str, dict[str, str]] = {
    "plain": {},
    "glibc, freed memory kept": WARM,
    "glibc, large pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "glibc, kept, large pages": {**WARM, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "torch, large pages": {"THP_MEM_ALLOC_ENABLE": "1"},
    "jemalloc": {"LD_PRELOAD": "jemalloc"},
    "jemalloc, kept, large pages": {"LD_PRELOAD": "jemalloc", "MALLOC_CONF": JEMALLOC},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a run cost.

    Attributes:
        name: of the way.
        environment: what was set.
        tokens_per_second: in training, of tokens that are not padding.
        peak: bytes that the process had at most; None where the system does not say.
        missing: why it did not run; empty when it did.
    """

    name: str
    environment: dict[str, str]
    tokens_per_second: float = 0.0
    peak: int | None = None
    missing: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AllocatorReport:
    """What each way cost.

    Attributes:
        sizes: of the model and the batch.
        machine: where this was measured.
    """

    costs: list[Cost]
    sizes: dict[str, Any]
    machine: dict[str, Any]


def measure(
    *,
    steps: int = 40,
    threads: int = 1,
    quick: bool = False,
    told: Callable[[Cost], None] = lambda cost: None,
) -> AllocatorReport:
    """Trains a model of MiniLM's size on the questions that ship with longspan, for so many steps
    in each way: batches of any lengths, bfloat16, learned windows.

    Args:
        told: is given what each way cost, when that is known.
    """
    sizes: dict[str, Any] = {"width": 384, "layers": 6, "heads": 12, "length": 384, "batch": 64}
    if quick:
        sizes |= {"width": 16, "layers": 1, "heads": 2, "length": 96, "batch": 4}
        steps = min(steps, 2)
    sizes |= {"steps": steps, "threads": threads}
    machine = setting(threads)
    costs = []
    for name, asked in WAYS.items():
        costs.append(_cost(name, asked, sizes))
        told(costs[-1])
    return AllocatorReport(costs=costs, sizes=sizes, machine=machine)


def save(report: AllocatorReport, folder: Path) -> list[Path]:
    """Writes `allocators.json`, and `figures.md`, which the page about training includes."""
    numbers, text = folder / "allocators.json", folder / "figures.md"
    write_json(numbers, asdict(report))
    write_text(text, figures_table(asdict(report)))
    return [numbers, text]


def figures_table(report: dict[str, Any]) -> str:
    """A line for each way, of a report as its file has it."""
    lines = ["| way | what is set | tokens/s | memory |", "| --- | --- | --: | --: |"]
    for cost in report["costs"]:
        asked = " ".join(f"{name}={value}" for name, value in cost["environment"].items())
        speed = cost["missing"] or f"{cost['tokens_per_second']:,.0f}"
        memory = "" if cost["peak"] is None else f"{cost['peak'] / 2**30:.1f} GiB"
        lines.append(f"| {cost['name']} | {f'`{asked}`' if asked else ''} | {speed} | {memory} |")
    return "\n".join(lines) + "\n"


def _cost(name: str, asked: dict[str, str], sizes: dict[str, Any]) -> Cost:
    environment = dict(asked)
    if name.startswith("glibc") and platform.libc_ver()[0] != "glibc":
        return Cost(name=name, environment=environment, missing="the C library is not glibc")
    if "LD_PRELOAD" in asked:
        library = find_library("jemalloc")
        if library is None:
            return Cost(name=name, environment=environment, missing="jemalloc is not installed")
        environment["LD_PRELOAD"] = library
    plain = child_environment()
    for variable in {key for own in WAYS.values() for key in own}:
        plain.pop(variable, None)
    code = "import sys; from longspan.bench.allocators import _work; _work(sys.argv[1])"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, json.dumps([sizes, folder])],
            stdout=subprocess.PIPE,
            text=True,
            env=plain | environment,
            check=False,
        )
    if done.returncode:
        # Killed for its memory, most likely: that is a figure, too.
        missing = f"its process ended with {done.returncode}"
        return Cost(name=name, environment=environment, missing=missing)
    found = json.loads(done.stdout.splitlines()[-1])
    return Cost(
        name=name,
        environment=environment,
        tokens_per_second=found["tokens_per_second"],
        peak=found["peak_memory"],
    )


def _work(asked: str) -> None:
    """The other side of `_cost`: one line with the result."""
    import torch

    sizes, folder = json.loads(asked)
    torch.set_num_threads(sizes["threads"])
    config = RunConfig(
        task={
            "name": "squad",
            "data": str(sample("squad_train.json.xz")),
            "settings": {
                "length": sizes["length"],
                "question_length": sizes["length"] // 6,
                "vocabulary": 8000,
                "dev": str(sample("squad_dev.json.xz")),
                "dev_questions": 2,
                "cache": f"{folder}/cache",
            },
        },
        model={key: sizes[key] for key in ("width", "layers", "heads")},
        mechanism={"kind": "LearnedWindow", "mean_reach": 16, "max_reach": 64},
        stages=(Stage(steps=sizes["steps"], batch=sizes["batch"]),),
        precision="bf16",
        output=f"{folder}/run",
    )
    print(json.dumps(train(config)))
