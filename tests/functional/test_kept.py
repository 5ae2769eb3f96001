"""What calls keep for later ones is plain, with values, whoever asked first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import longspan as ls
from longspan.functional import problems, reach
from longspan.functional.attention import prepared
from longspan.kernels import cpu
from longspan.layout import compile, tiles
from longspan.patterns import Causal, Global, PerHead, Random, Strided, Window
from longspan.weights import Bell, Ramp

# Torch prepares for derivatives by what it warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*trace:torch.jit.TracerWarning"),
]

N = 80
BACKENDS = ["torch", *(["cpu"] if cpu.available() else [])]

Use = Callable[[Tensor], object]

CALLS: dict[str, dict[str, Any]] = {
    "window": {"pattern": Window(5, 3) | Global(1)},
    "blocks": {"pattern": Random(2, 16) | Window(1, 1)},
    "heads": {"pattern": PerHead([Causal(), Strided(3)])},
    "bell": {"weight": Bell(40.0, threshold=0.5, exempt=Global(1))},
    "ramp": {"weight": [Ramp(4.0, 2.0), Bell(40.0)], "pattern": Causal()},
}


def inputs() -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, N, 8, generator=source) for _ in range(3)]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    def forget() -> None:
        for kept in (
            *(compile._static, tiles._static, problems._same_for_all),
            *(reach._bell_reach, reach._ramp_reach),
        ):
            kept.cache_clear()

    forget()
    yield
    forget()


def faked(use: Use, q: Tensor) -> None:
    with FakeTensorMode() as mode:
        use(mode.from_tensor(q))


def faked_among_others(use: Use, q: Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        use(mode.from_tensor(q))


def inferred(use: Use, q: Tensor) -> None:
    with torch.inference_mode():
        use(q.clone())


def followed(use: Use) -> Callable[[Tensor], Tensor]:
    def function(q: Tensor) -> Tensor:
        use(q)
        return q.sum()

    return function


STATES: dict[str, Callable[[Use, Tensor], object]] = {
    "fake tensors": faked,
    "fake tensors among others": faked_among_others,
    "inference": inferred,
    "grad": lambda use, q: torch.func.grad(followed(use))(q),
    "jvp": lambda use, q: torch.func.jvp(followed(use), (q,), (q,)),
    "vmap": lambda use, q: torch.func.vmap(followed(use))(q[None]),
    "make_fx": lambda use, q: make_fx(followed(use))(q),
    "make_fx, symbolic": lambda use, q: make_fx(followed(use), tracing_mode="symbolic")(q),
    "torchscript": lambda use, q: torch.jit.trace(followed(use), (q,), check_trace=False),
}


def results(name: str, backend: str) -> list[Any]:
    """Output, gradients, and what `explain` says."""
    q, k, v = given = [x.requires_grad_() for x in inputs()]
    y = ls.attention(q, k, v, **CALLS[name], backend=backend)
    told = ls.explain(q, k, v, **CALLS[name], backend=backend)
    return [y, *torch.autograd.grad(y.square().sum(), given), told.pairs, told.tiles]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("layout_is_there", [False, True])
def test_later_calls_are_as_ever(
    state: str, name: str, backend: str, layout_is_there: bool
) -> None:
    wanted = results(name, "reference")
    q, k, v = inputs()
    if layout_is_there:
        call = prepared(q, k, v, **CALLS[name])
        _ = problems.problem_of(q, k, v, call.meaning, call.settings).layout
    told = []

    def use(q: Tensor) -> None:
        if state != "make_fx, symbolic":  # which has no numbers for lengths
            told.append(ls.explain(q, q, q, **CALLS[name], backend=backend).pairs)
        if state != "jvp":
            ls.attention(q, q, q, **CALLS[name], backend=backend)

    STATES[state](use, q)
    found = results(name, backend)
    for have, want in zip(found[:4], wanted[:4], strict=True):
        torch.testing.assert_close(have, want, atol=2e-5, rtol=2e-5)
    assert {found[4], *told} == {wanted[4]}
