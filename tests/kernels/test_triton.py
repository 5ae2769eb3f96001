"""The GPU backend: the contract, on a GPU where there is one and under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import longspan as ls
from longspan.functional.attention import prepared
from longspan.functional.dispatch import refusals
from longspan.functional.problems import problem_of
from longspan.kernels import triton as triton_backend

from ..problems import Case, cases
from .contract import BackendContract


class TritonContract(BackendContract):
    """The contract of a backend that leaves some problems to others: it must say so, and `auto`
    must go on.
    """

    backend = "triton"

    def attention(self, *inputs: Tensor, **options: object) -> Tensor:
        try:
            return super().attention(*inputs, **options)
        except ValueError as error:
            assert "triton: it" in str(error)
            return ls.attention(*inputs, **options)  # type: ignore[arg-type]

    def refused(self, case: Case, dtype: torch.dtype) -> bool:
        """Does the backend leave the case to others? Then it must say why."""
        built = case.build(dtype, self.device)
        call = prepared(built.q, built.k, built.v, **built.options)
        problem = problem_of(call.q, call.k, call.v, call.meaning, call.settings)
        if not refusals(problem)["triton"]:
            return False
        with pytest.raises(ValueError, match="triton: it"):
            built.run("triton")
        return True


@pytest.mark.gpu
class TestTritonBackend(TritonContract):
    device = "cuda"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run on the GPU here")
@pytest.mark.skipif(not triton_backend.available(), reason="needs triton")
# What a kernel computes of pairs that do not exist, and drops, NumPy warns of.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
class TestInterpretedTriton(TritonContract):
    @pytest.fixture(autouse=True)
    def _interpreted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        yield

    @given(case=cases())
    @settings(max_examples=12)
    def test_random_problems(self, case: Case) -> None:
        self.check(case, torch.float32)

    def refused(self, case: Case, dtype: torch.dtype) -> bool:
        # The interpreter computes bfloat16 wrongly, and long rows for minutes.
        if dtype != torch.float32 or case.size.m > 10_000:
            return True
        return super().refused(case, dtype)
