"""The portable backend: the contract, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from longspan.functional.attention import prepared
from longspan.functional.problems import problem_of
from longspan.kernels import torch as torch_backend
from longspan.kernels.problem import Problem
from longspan.layout import TILE, tiles_touched
from longspan.normalizers import Entmax
from longspan.patterns import Causal, Full, Global, Pattern, SameDocument, Strided, Window
from longspan.weights import Bell, DistanceBias, RelativePosition

from .digits import DigitsContract


class TestTorchBackend(DigitsContract):
    backend = "torch"


@pytest.mark.gpu
class TestTorchBackendOnGPU(DigitsContract):
    backend = "torch"
    device = "cuda"


def problem(n: int, pattern: Pattern, *, heads: int = 2, d: int = 32, **options: Any) -> Problem:
    q, k, v = (torch.randn(1, heads, n, d) for _ in range(3))
    call = prepared(q, k, v, pattern, **options)
    settings = call.settings._replace(seed=torch.tensor([7]))
    return problem_of(call.q, call.k, call.v, call.meaning, settings)


def run(problem: Problem) -> None:
    """Forward and backward, with every gradient."""
    out, limits = torch_backend.forward(problem)
    wanted = frozenset(
        (term.number, name)
        for term in problem.terms
        for name in term.__dataclass_fields__
        if isinstance(getattr(term, name), Tensor)
    )
    torch_backend.backward(problem, out, limits, torch.ones_like(out), wanted)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operator returned."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.where = 0, ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, (list, tuple)) else (found,):
            if (
                isinstance(x, Tensor)
                and not x._is_view()
                and x.untyped_storage().nbytes() > self.bytes
            ):
                self.bytes, self.where = x.untyped_storage().nbytes(), f"{func} {tuple(x.shape)}"
        return found


N = 6000

LONG = {
    "window": (Window(300, 300) | Global(3), {}),
    "entmax": (Window(300, 300) | Global(3), {"normalizer": Entmax(1.5)}),
    "full": (Full(), {}),
    "strided": (Causal() & (Window(63, 0) | Strided(64)), {}),
    "bell": (
        Full(),
        {"weight": Bell(torch.rand(1, 2, N) * 9000 + 1, threshold=0.5, exempt=Global(2))},
    ),
    "distance": (Window(200, 200), {"weight": DistanceBias(torch.randn(2, 401))}),
    "relative": (Window(60, 60), {"weight": RelativePosition(torch.randn(2, 401, 32))}),
    "dropout": (Window(300, 300), {"dropout": 0.1}),
    "documents": (SameDocument(torch.arange(N)[None] // 1500), {}),
}


@pytest.mark.parametrize("name", LONG)
def test_no_buffer_over_32_mib(name: str) -> None:
    pattern, options = LONG[name]
    asked = problem(N, pattern, **options)
    with LargestTensor() as largest:
        run(asked)
    assert largest.bytes <= 32 << 20, largest.where


@pytest.mark.parametrize(
    "pattern",
    [
        Window(100, 100),
        Window(20, 20, dilation=16) & Causal(),
        Window(50, 50) | Global(2),
        Strided(128),
        Full(),
    ],
    ids=str,
)
def test_cost_follows_the_tiles(pattern: Pattern) -> None:
    """The matrix products of the forward are those of the touched tiles, and little more where rows
    are grouped.
    """
    asked = problem(2048, pattern)
    with FlopCounterMode(display=False) as counter:
        torch_backend.forward(asked)
    d = asked.q.shape[3]
    tiles = tiles_touched(asked.layout, 1, 2)
    assert counter.get_total_flops() <= 1.35 * tiles * TILE * TILE * 2 * (d + d)


def test_cost_of_a_window_is_linear() -> None:
    flops = []
    for n in (2048, 4096):
        with FlopCounterMode(display=False) as counter:
            run(problem(n, Window(64, 64) | Global(2)))
        flops.append(counter.get_total_flops())
    assert flops[1] <= 2.1 * flops[0]


def test_takes_everything() -> None:
    assert torch_backend.unsupported_reasons(problem(10, Window(1, 1))) == []
