"""The compiled backend keeps the contract on every instruction set that the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import longspan as ls
from longspan.kernels import cpu
from longspan.kernels.cpu import launch
from longspan.patterns import Global, Window
from longspan.weights import Bell

from ..problems import Case
from .contract import BackendContract

pytestmark = pytest.mark.skipif(not cpu.available(), reason="the compiled part was not built")


@pytest.mark.parametrize("instructions", cpu.instruction_sets(), scope="class")
class TestCpuBackend(BackendContract):
    backend = "cpu"

    @pytest.fixture(autouse=True)
    def _instructions(self, instructions: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(launch, "INSTRUCTIONS", instructions)
        yield

    def check(self, case: Case, dtype: torch.dtype) -> None:
        relative = sum("relative" in name for name in case.weights)
        if dtype == torch.float64 or relative > 1:
            # What it refuses, it must say.
            with pytest.raises(ValueError, match="backend='cpu' does not take this call"):
                case.build(dtype).run(self.backend)
            return
        super().check(case, dtype)


def test_auto_takes_it() -> None:
    q = torch.randn(1, 1, 9, 4)
    assert ls.explain(q, q, q, Window(1, 1)).backend == "cpu"
    wide = torch.randn(1, 12, 300, 4, dtype=torch.float64)
    found = ls.explain(wide, wide, wide)
    assert found.backend == "torch" and "float32, got float64" in found.refusals["cpu"][0]


def test_unknown_instruction_sets_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INSTRUCTIONS", "mmx")
    q = torch.randn(1, 1, 9, 4)
    with pytest.raises(ValueError, match="mmx"):
        ls.attention(q, q, q, backend="cpu")


@pytest.mark.parametrize("name", ["auto", "torch"])
def test_defaults_of_torch_change_nothing(name: Any) -> None:
    """Neither its dtype nor its device: kernels write into what is made for them."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 64, 8) for _ in range(3))
    variance = torch.rand(1, 2, 64) * 30 + 1
    grad = torch.randn(1, 2, 64, 8)

    def results(tokens: Global) -> list[torch.Tensor]:
        leaves = [x.detach().requires_grad_() for x in (q, k, v, variance)]
        bell = Bell(leaves[3], threshold=0.1, exempt=tokens)
        y = ls.attention(*leaves[:3], Window(8, 8) | tokens, weight=bell, backend=name)
        return [y.detach(), *torch.autograd.grad(y, leaves, grad)]

    wanted = results(Global(2))
    try:
        for dtype in (torch.float64, torch.bfloat16):
            torch.set_default_dtype(dtype)
            for have, want in zip(results(Global(2)), wanted, strict=True):
                assert torch.equal(have, want)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        found = results(Global(2))
    for have, want in zip(found, wanted, strict=True):
        assert torch.equal(have, want)
