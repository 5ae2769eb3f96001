"""The compiled backend keeps the contract on every instruction set that the machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import longspan as ls
from longspan.kernels import cpu
from longspan.kernels.cpu import launch
from longspan.patterns import Window

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
