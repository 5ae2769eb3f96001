"""What attention costs on the CPU: pairs, tiles, time and memory, beside PyTorch's dense attention.

Time is the median of several calls after one that is not counted. Memory is how much the resident
memory of a process grows, to its peak, in one forward and backward pass: whatever took it, beyond
the inputs.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .functional import attention
from .functional.reach import cut_of
from .layout import compile_layout, pairs, tiles_touched
from .memory import peak_growth
from .patterns import Causal, Full, Global, Pattern, Window
from .weights import Weight

__all__ = [
    "Case",
    "Counts",
    "Size",
    "Times",
    "child_environment",
    "counts_of",
    "peak_memory",
    "times_of",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The size of a call, which has as many queries as keys."""

    batch: int = 1
    heads: int = 4
    length: int = 4096
    head_dim: int = 64
    dtype: torch.dtype = torch.float32

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values that want gradients; the same at every call."""
        source = torch.Generator().manual_seed(0)
        shape = (self.batch, self.heads, self.length, self.head_dim)
        q, k, v = (torch.randn(shape, generator=source).to(self.dtype) for _ in range(3))
        return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A call to measure.

    Attributes:
        name: what a table calls it.
        pattern: which pairs exist. PyTorch's own attention knows `Full()` and `Causal()`.
        weight: as `attention` takes it.
        by: `"longspan"`, or `"sdpa"` for PyTorch's `F.scaled_dot_product_attention`.
    """

    name: str
    pattern: Pattern
    weight: Weight | None = None
    by: Literal["longspan", "sdpa"] = "longspan"

    def __post_init__(self) -> None:
        if self.by == "sdpa" and (self.weight or not isinstance(self.pattern, (Full, Causal))):
            raise ValueError(f"{self.name}: by='sdpa' takes Full() or Causal(), and no weight")

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The call itself."""
        if self.by == "longspan":
            return attention(q, k, v, self.pattern, weight=self.weight)
        return F.scaled_dot_product_attention(q, k, v, is_causal=isinstance(self.pattern, Causal))


class Counts(NamedTuple):
    """What a call works on, over all samples and heads.

    Attributes:
        pairs: that exist.
        share: of the pairs that full attention has.
        tiles: that are computed; None for PyTorch's own attention, which does not say.
    """

    pairs: int
    share: float
    tiles: int | None


class Times(NamedTuple):
    """Seconds: the forward pass alone, without gradients; and forward and backward together."""

    forward: float
    both: float


def counts_of(case: Case, size: Size) -> Counts:
    """Counts pairs and tiles in the layout that the kernels walk."""
    n = size.length
    cuts = () if case.weight is None else (cut_of(case.weight, n, torch.device("cpu")),)
    layout = compile_layout(case.pattern, cuts, n, n, torch.device("cpu"), merge=True)
    found = pairs(layout, size.batch, size.heads)
    tiles = tiles_touched(layout, size.batch, size.heads) if case.by == "longspan" else None
    return Counts(found, found / (size.batch * size.heads * n * n), tiles)


def times_of(case: Case, size: Size, *, repeats: int = 5, enough: float = 1.0) -> Times:
    """Times a call, with as many threads as torch has now.

    Repeats end early when they have taken `enough` seconds.
    """
    q, k, v = size.inputs()

    def forward() -> None:
        with torch.no_grad():
            case.forward(q, k, v)

    def both() -> None:
        case.forward(q, k, v).sum().backward()

    return Times(_median_of(forward, repeats, enough), _median_of(both, repeats, enough))


def peak_memory(make: Callable[[Size], Sequence[Case]], size: Size) -> Iterator[int | None]:
    """Bytes that each case in turn takes at its peak, beyond the inputs; None where not on Linux.

    The cases run in a fresh process. There, memory that is freed goes back to the system at once:
    what one case has used is not there for the next, and figures repeat to about a megabyte.

    Args:
        make: a function of a module, which that process imports by its name.
        size: of the calls, and what `make` is called with.
    """
    sizes = asdict(size) | {"dtype": str(size.dtype).removeprefix("torch.")}
    asked = json.dumps([make.__module__, make.__qualname__, sizes, torch.get_num_threads()])
    code = "import sys; from longspan.measure import _work; _work(sys.argv[1])"
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, asked],
        stdout=subprocess.PIPE,
        env=child_environment() | {"MALLOC_MMAP_THRESHOLD_": str(1 << 16)},
    )
    with worker:
        assert worker.stdout is not None
        for case in make(size):
            line = worker.stdout.readline()
            if not line:
                raise RuntimeError(f"the process that measures memory ended at {case.name!r}")
            yield json.loads(line)


def child_environment() -> dict[str, str]:
    """The environment for a Python process that imports this very longspan, installed or not."""
    here = str(Path(__file__).resolve().parents[1])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _work(asked: str) -> None:
    """The other side of `peak_memory`: one line for every case."""
    module, name, sizes, threads = json.loads(asked)
    size = Size(**sizes | {"dtype": getattr(torch, sizes["dtype"])})
    torch.set_num_threads(threads)
    # What the first calls load and start, code and threads, is not a cost of any one case.
    for case in (
        Case(name="", pattern=Window(8, 8) | Global(1)),
        Case(name="", pattern=Full(), by="sdpa"),
    ):
        case.forward(*Size(length=200).inputs()).sum().backward()
    for case in getattr(importlib.import_module(module), name)(size):
        print(json.dumps(_growth(case, *size.inputs())), flush=True)


def _growth(case: Case, q: Tensor, k: Tensor, v: Tensor) -> int | None:
    """By how many bytes the resident memory of this process grows, at its peak, in both passes."""
    return peak_growth(lambda: case.forward(q, k, v).sum().backward(), q.device)


def _median_of(run: Callable[[], None], repeats: int, enough: float) -> float:
    run()
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < enough:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
