"""What holds besides of backends that keep the digits of large scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import longspan as ls
from longspan.normalizers import Entmax, Softmax, Sparsemax
from longspan.patterns import Strided, Window
from longspan.weights import Bias

from ..problems import NORMALIZERS, Case, Size
from .contract import FLOATS, BackendContract

TWO_WALKS = Size(batch=1, key_heads=1, n=70, m=70)


class DigitsContract(BackendContract):
    """What holds besides of a backend that keeps the digits of a row's limit in both passes, and
    knows which rows of several walks have all that counts in one. Its scores are the same bits in
    both, which those of a GPU in float32 are not, where a key's tile and a row's sum in other
    orders.
    """

    @pytest.mark.parametrize("normalizer", NORMALIZERS)
    @pytest.mark.parametrize("steep", [1e5, 1e10, 1e20])
    def test_scores_far_apart_in_float32(self, steep: float, normalizer: str) -> None:
        self.check_scores(steep, normalizer, torch.float32)

    @pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
    @pytest.mark.parametrize("normalizer", [*NORMALIZERS, "1.0001"])
    @pytest.mark.parametrize("steep", [3e2, 3e3])
    def test_large_scores(self, steep: float, normalizer: str, dtype: torch.dtype) -> None:
        if dtype == torch.float16 and steep > 1e3:
            return  # Gradients of keys would be past its end.
        self.check_scores(steep, normalizer, dtype)

    @pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
    @pytest.mark.parametrize("steep", [1.0, 3e2, 1e5, 1e10, 1e20])
    def test_rows_in_two_walks(self, steep: float, dtype: torch.dtype) -> None:
        """Of which one may have all that counts."""
        if steep < torch.finfo(dtype).max / 100:
            self.check(Case(TWO_WALKS, ("window", "strided"), dropout=0.3, steep=steep), dtype)
            global_row = Case(TWO_WALKS, ("window", "global"), padding=True, steep=steep)
            self.check(global_row, dtype)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("steep", [5.0, 10.0, 30.0])
    def test_rows_mostly_in_one_of_two_walks(self, steep: float, dtype: torch.dtype) -> None:
        for seed in range(3):
            case = Case(TWO_WALKS, ("window", "strided"), steep=steep, seed=seed)
            self.check(case, dtype)

    def test_a_small_share_of_a_large_value_in_another_walk(self) -> None:
        """What it adds to the gradients is not lost in the rounding of all the others' shares."""
        q, k, v = (self.normal(1, 1, 70, 8) for _ in range(3))
        at = torch.arange(70, device=self.device)
        far = ((at[:, None] - at).abs() > 3) * -18.0
        with torch.no_grad():
            q *= 0.3
            v[:, :, 0] *= 1e6
        # Of rows in which that key is in the other walk.
        grad = torch.randn_like(q) * (at % 7 == 0)[:, None] * (at > 3)[:, None]

        def gradients(dtype: torch.dtype, backend: Any) -> tuple[torch.Tensor, ...]:
            leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
            weight = Bias(far.to(dtype)[None, None])
            y = ls.attention(*leaves, Window(3, 3) | Strided(7), weight=weight, backend=backend)
            return torch.autograd.grad(y, leaves, grad.to(dtype))

        want = gradients(torch.float64, "reference")
        for have, right in zip(gradients(torch.float32, self.backend), want, strict=True):
            assert (have - right).abs().max() <= 1e-6 * right.abs().max()

    @pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax(), Entmax(1.5)], ids=str)
    @pytest.mark.parametrize("height", [1e9, -1e12, -1e20])
    def test_equal_large_scores(self, height: float, normalizer: ls.normalizers.Normalizer) -> None:
        """Of numbers so large no digit is left that a score could differ in."""
        q, k, v = (self.normal(1, 2, 70, 8) for _ in range(3))
        bias = torch.full((1, 1, 70, 70), height, device=self.device, requires_grad=True)
        y = self.attention(q, k, v, weight=Bias(bias), normalizer=normalizer)
        grad = torch.randn_like(y)
        to_v, to_bias = torch.autograd.grad(y, (v, bias), grad)
        torch.testing.assert_close(y, v.mean(2, keepdim=True).expand_as(y))
        torch.testing.assert_close(to_v, grad.mean(2, keepdim=True).expand_as(to_v))
        wanted = torch.zeros_like(bias, dtype=torch.float64, requires_grad=True)
        options = {"weight": Bias(wanted), "normalizer": normalizer, "backend": "reference"}
        flat = ls.attention(q.double() * 0, k.double(), v.double(), **options)  # type: ignore[arg-type]
        (want,) = torch.autograd.grad(flat, wanted, grad.double())
        torch.testing.assert_close(to_bias, want.float())

    @pytest.mark.parametrize("height", [1e9, -1e12, -1e20])
    def test_shares_of_equal_large_scores_in_two_walks(self, height: float) -> None:
        """Together they are 1, whatever is left of their digits."""
        q, k, ones = self.normal(1, 2, 70, 8), self.normal(1, 2, 70, 8), torch.ones(1, 2, 70, 1)
        bias = Bias(torch.full((1, 1, 70, 70), height, device=self.device))
        pattern = Window(3, 3) | Strided(7)
        y = self.attention(q, k, ones.to(self.device), pattern=pattern, weight=bias)
        assert (y - 1).abs().max() <= 1e-6

    @pytest.mark.parametrize("height", [1e6, -1e9])
    def test_equal_large_scores_in_two_walks(self, height: float) -> None:
        """As far as the log-sum-exps by which the walks are joined have digits for their counts."""
        q, k, v = (self.normal(1, 2, 70, 8) for _ in range(3))
        grad = torch.randn_like(v)
        pattern = Window(3, 3) | Strided(7)

        def gradients(x: torch.Tensor, own: float, backend: Any) -> tuple[torch.Tensor, ...]:
            bias = torch.full((1, 1, 70, 70), own, device=x.device, dtype=x.dtype)
            y = ls.attention(q.to(x) * 0, k.to(x), x, pattern, weight=Bias(bias), backend=backend)
            return y, *torch.autograd.grad(y, x, grad.to(x))

        want = gradients(v.detach().double().requires_grad_(), 0.0, "reference")
        for have, right in zip(gradients(v, height, self.backend), want, strict=True):
            torch.testing.assert_close(have, right.float(), rtol=1e-5, atol=1e-6)
