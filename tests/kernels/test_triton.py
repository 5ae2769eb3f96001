"""The GPU backend: the contract, on a GPU where there is one and under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import longspan as ls
from longspan.functional.attention import prepared
from longspan.functional.dispatch import refusals
from longspan.functional.problems import problem_of
from longspan.kernels import triton as triton_backend
from longspan.layout import compile_layout
from longspan.patterns import Causal, Global, Window

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
    def _few_programs(self, interpreted: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
        most = {torch.float32: 500_000, torch.float16: 2_000}.get(dtype, 0)
        if size.m > 10_000 or pairs > most:
            return True
        return super().refused(case, dtype)


class SplitTests:
    """What must hold where keys and rows are split into chunks, however short they are."""

    contract: ClassVar[TritonContract]

    @pytest.fixture(autouse=True)
    def counts(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Forces three chunks, and lists what is split."""
        from longspan.kernels.triton import chunks

        asked: list[int] = []

        def three(programs: int, tiles: int) -> int:
            asked.append(tiles)
            return 3

        monkeypatch.setattr(chunks, "chunk_count", three)
        return asked

    @pytest.mark.parametrize(
        "case",
        [
            # Two tiles of keys: the third chunk is empty.
            Case(Size(n=90, m=90), ("window", "global"), weights=("bell",), padding=True),
            Case(Size(1, 1, n=150, m=150, groups=2), ("window", "global"), dropout=0.3),
            Case(Size(1, groups=2, n=70, m=70), ("heads",), weights=("ramp", "alibi")),
            Case(Size(1, 1, n=90, m=90), ("dilated", "global"), weights=("alibi",)),
            Case(Size(n=66, m=80), ("sample_global", "sides"), weights=("head_bell",)),
            Case(Size(1, n=90, m=70), ("summaries", "global"), padding=True),
            Case(Size(1, n=80, m=80), ("window", "global"), weights=("exempt_bell",)),
        ],
        ids=str,
    )
    def test_agrees(self, counts: list[int], case: Case) -> None:
        self.contract.check(case, torch.float32)
        assert counts

    def test_nan_stays_where_it_is_seen(self, counts: list[int]) -> None:
        pattern, device = Causal() & (Window(3, 3) | Global(2)), self.contract.device
        q, k, v = (torch.randn(1, 1, 70, 4, device=device).requires_grad_() for _ in range(3))
        broken = v.detach().clone()
        broken[0, 0, 40] = torch.nan
        broken.requires_grad_()
        y, want = (self.contract.attention(q, k, x, pattern=pattern) for x in (broken, v))
        calm = ~pattern.dense(70)[0, 0, :, 40].to(device)
        assert y[0, 0, ~calm].isnan().all() and counts
        torch.testing.assert_close(y[0, 0, calm], want[0, 0, calm])
        unseen = ~pattern.dense(70)[0, 0, ~calm.cpu()].any(0).to(device)
        unseen[40] = False
        for x, clean in zip((q, k, broken), (q, k, v), strict=True):
            have, right = (
                torch.autograd.grad(out[0, 0, calm].sum(), leaf, retain_graph=True)[0][0, 0]
                for out, leaf in ((y, x), (want, clean))
            )
            rows = calm if x is q else unseen
            torch.testing.assert_close(have[rows], right[rows])

    def test_unseen_nan_never_leaks(self, counts: list[int]) -> None:
        self.contract.test_unseen_nan_never_leaks()
        assert counts

    def test_same_bits_again(self, counts: list[int]) -> None:
        case = Case(Size(1, n=90, m=90, groups=2), ("window", "global"), weights=("bell",))
        built = case.build(torch.float32, self.contract.device)
        first, again = built.run("triton"), built.run("triton")
        assert all(torch.equal(value, again[name]) for name, value in first.items()) and counts


@pytest.mark.gpu
class TestSplitTriton(SplitTests):
    contract = TestTritonBackend()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run on the GPU here")
@pytest.mark.skipif(not triton_backend.available(), reason="needs triton")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("interpreted")
class TestInterpretedSplit(SplitTests):
    contract = TestInterpretedTriton()


@pytest.mark.skipif(not triton_backend.available(), reason="needs triton")
class TestPlans:
    """What the host decides, from shapes alone."""

    def test_chunks_fill_a_gpu(self) -> None:
        from longspan.kernels.triton.chunks import chunk_count

        assert chunk_count(64, 64) == 8
        assert chunk_count(1, 64) == 16
        # Enough programs, or too little for each.
        assert chunk_count(4096, 64) == chunk_count(300, 64) == chunk_count(1, 7) == 1

    def test_every_order_of_keys_is_launched_once(self) -> None:
        from longspan.kernels.triton.sources import shares

        device = torch.device("cpu")
        layout = compile_layout(Window(9, 9) | Global(3), (), 100, 100, device, merge=True)
        base, columns = shares(layout)
        assert shares(layout)[0] is base
        assert base.sources == [(0, 0), (1, 0)] and not base.indexed
        # The columns of the window's rows and those of the global rows are one order.
        assert columns.sources == [(0, 1), (1, 1)] and columns.slots is not None
        assert columns.slots[0, :5].tolist() == [0, 1, 2, -1, -1]

    def test_an_order_of_all_keys_is_the_base(self) -> None:
        from longspan.kernels.triton.sources import shares

        device = torch.device("cpu")
        dilated = compile_layout(Window(4, 4, dilation=3), (), 50, 50, device, merge=True)
        assert [(s.indexed, s.order.length) for s in shares(dilated)] == [(True, 50)]
        columns = compile_layout(Global(3, rows=False), (), 50, 50, device, merge=True)
        assert [(s.indexed, s.sources) for s in shares(columns)] == [(False, []), (True, [(0, 0)])]
