"""The GPU backend: the contract, on a GPU where there is one and under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import longspan as ls
from longspan.functional.attention import prepared
from longspan.functional.dispatch import refusals
from longspan.functional.problems import problem_of
from longspan.kernels import triton as triton_backend

from ..problems import Case, Size, cases
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

    @pytest.mark.parametrize(
        "case",
        [
            # Residue orders; a table that is shorter than the window.
            Case(Size(n=150, m=70), ("dilated",), weights=("distance", "shared_bias")),
            # Every sample has rows and keys of its own, and all of them one bias.
            Case(Size(), ("sample_global", "left"), weights=("shared_bias", "long_distance")),
            # Walks of some heads each; grouped queries.
            Case(Size(groups=2), ("heads",), weights=("shared_bias", "distance", "key_bias")),
            # Tile lists, next to one another and apart; what a later weight does to the scores.
            Case(Size(n=70, m=200), ("mask",), weights=("bias", "shared_distance", "head_bell")),
            Case(Size(1, n=150, m=300), ("random",), weights=("long_distance", "key_bias")),
            # Documents, dropout and a factor.
            Case(Size(), ("documents",), weights=("row_bias", "bias", "factor_bell"), dropout=0.3),
            # A reach, with pairs that it exempts.
            Case(Size(), ("window", "global"), weights=("exempt_bell", "distance", "key_bias")),
        ],
        ids=str,
    )
    def test_gradients_of_biases(self, case: Case) -> None:
        built = case.build(torch.float32, self.device)
        call = prepared(built.q, built.k, built.v, **built.options)
        problem = problem_of(call.q, call.k, call.v, call.meaning, call.settings)
        assert refusals(problem)["triton"] == []
        self.check(case, torch.float32)

    @pytest.mark.parametrize(("room", "programs"), [(0, 1), (1 << 11, 1), (1 << 30, 8)])
    def test_tables_of_any_number(
        self, room: int, programs: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One table for all rows of a program, for some, or for each; few programs or many."""
        from longspan.kernels.triton import bias_launch

        monkeypatch.setattr(bias_launch, "TABLE_BYTES", room)
        monkeypatch.setattr(bias_launch, "ENOUGH_PROGRAMS", programs)
        case = Case(Size(1, n=70, m=150), ("dilated",), weights=("distance", "key_bias"))
        self.check(replace(case, padding=True), torch.float32)
        self.check(replace(case, patterns=("left", "global")), torch.float32)


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
        # Programs are interpreted one after another: more of them only take longer.
        monkeypatch.setattr("longspan.kernels.triton.bias_launch.ENOUGH_PROGRAMS", 8)
        yield

    @given(case=cases())
    @settings(max_examples=12)
    def test_random_problems(self, case: Case) -> None:
        self.check(case, torch.float32)

    def refused(self, case: Case, dtype: torch.dtype) -> bool:
        # The interpreter computes bfloat16 wrongly, and long rows and many pairs for minutes.
        size = case.size
        pairs = size.batch * size.heads * size.n * size.m
        if dtype != torch.float32 or size.m > 10_000 or pairs > 500_000:
            return True
        return super().refused(case, dtype)
