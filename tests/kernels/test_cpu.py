"""The compiled backend keeps the contract on every instruction set that the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import longspan as ls
from longspan.kernels import cpu
from longspan.kernels.cpu import launch, request
from longspan.patterns import Global, Window
from longspan.weights import Bell, RelativePosition

from ..problems import Case, Size
from .contract import agrees
from .digits import DigitsContract

pytestmark = pytest.mark.skipif(not cpu.available(), reason="the compiled part was not built")


@pytest.mark.parametrize("instructions", cpu.instruction_sets(), scope="class")
class TestCpuBackend(DigitsContract):
    backend = "cpu"

    @pytest.fixture(autouse=True)
    def _instructions(self, instructions: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(launch, "INSTRUCTIONS", instructions)
        yield

    def check(self, case: Case, dtype: torch.dtype, unseen: float | None = None) -> None:
        relative = sum("relative" in name for name in case.weights)
        if dtype == torch.float64 or relative > 1:
            # What it refuses, it must say.
            with pytest.raises(ValueError, match="backend='cpu' does not take this call"):
                case.build(dtype).run(self.backend)
            return
        super().check(case, dtype, unseen)


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


@pytest.mark.parametrize("weight", ["bias", "key_bias", "row_bias", "shared_bias"])
def test_gradients_of_large_biases(weight: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "MOST_WIDE", 0)
    case = Case(Size(n=90, m=90), ("window", "global"), weights=(weight,))
    assert list(agrees(case, torch.float32, "cpu", "cpu")) == []


@pytest.mark.parametrize("name", ["cpu", "torch", "reference"])
def test_encodings_that_no_pair_reads(name: Any) -> None:
    """NaN there stays there, though offsets like these are between rows and keys of one tile."""
    torch.manual_seed(0)
    leaves = [torch.randn(1, 2, 60, 8, requires_grad=True) for _ in range(3)]
    positions = torch.randn(2, 201, 8)
    found = []
    for unread in (0.0, torch.nan):
        positions[:, [80, 120]] = unread
        table = positions.clone().requires_grad_()
        y = ls.attention(*leaves, Window(3, 3), weight=RelativePosition(table), backend=name)
        found.append(torch.autograd.grad(y.square().sum(), [*leaves, table]))
    for have, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(have, want)


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
