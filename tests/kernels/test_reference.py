"""The reference defines the answer: here it is held against loops over numbers, and against finite
differences.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.normalizers import Entmax, Softmax, Sparsemax
from longspan.patterns import Global, Window
from longspan.weights import Bell

from ..problems import NORMALIZERS, WEIGHTS, Case, Size
from .digits import DigitsContract


class TestReferenceKeepsTheContract(DigitsContract):
    backend = "reference"

    # It is what the other answers are measured by; the rest of the contract holds for it as well.
    test_every_pattern = test_every_weight = test_random_problems = test_sizes = None  # type: ignore[assignment]
    test_long_rows_split_over_buffers = None  # type: ignore[assignment]


def attention_by_loops(
    q: Tensor, k: Tensor, v: Tensor, exists: Tensor, variance: Tensor | None = None
) -> Tensor:
    """Softmax attention, pair by pair, in Python numbers."""
    batch, heads, n, d = q.shape
    m, groups = k.shape[2], heads // k.shape[1]
    y = torch.zeros(batch, heads, n, v.shape[3], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for r in range(n):
                weights: dict[int, float] = {}
                for j in range(m):
                    if exists[b, h, r, j]:
                        s = float(q[b, h, r] @ k[b, h // groups, j]) / math.sqrt(d)
                        if variance is not None:
                            s -= (j - (r + m - n)) ** 2 / (2 * float(variance[b, h, r]))
                        weights[j] = math.exp(s)
                total = sum(weights.values())
                for j, w in weights.items():
                    y[b, h, r] += w / total * v[b, h // groups, j]
    return y


@pytest.mark.parametrize(("n", "m"), [(9, 9), (4, 11), (11, 4), (1, 1)])
def test_against_loops(n: int, m: int) -> None:
    q = torch.randn(2, 4, n, 3, dtype=torch.float64)
    k, v = (torch.randn(2, 2, m, size, dtype=torch.float64) for size in (3, 5))
    variance = torch.rand(2, 4, n, dtype=torch.float64) * 20 + 0.5
    pattern = Window(3, 1) | Global(1)
    exists = pattern.dense(n, m).expand(2, 4, n, m)
    y = ls.attention(q, k, v, pattern, backend="reference")
    torch.testing.assert_close(y, attention_by_loops(q, k, v, exists))
    position = torch.arange(m - n, m)[:, None]
    near = (torch.arange(m) - position).abs() <= (variance * 2 * math.log(2)).sqrt()[..., None]
    y = ls.attention(q, k, v, pattern, weight=Bell(variance, threshold=0.5), backend="reference")
    torch.testing.assert_close(y, attention_by_loops(q, k, v, exists & near, variance))


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("weight", [None, *WEIGHTS])
def test_gradients_against_finite_differences(weight: str | None, normalizer: str) -> None:
    size = Size(batch=1, key_heads=1, groups=2, n=5, m=6, d=2, dv=2)
    weights = () if weight is None else (weight,)
    case = Case(size, ("window", "global"), weights=weights, normalizer=normalizer, padding=True)
    built = case.build(torch.float64)
    names = [n for n in built.leaves if "bias" not in n or built.leaves[n].isfinite().all()]
    leaves = [built.leaves[name] for name in names]

    def run(*_: Tensor) -> Tensor:
        return ls.attention(built.q, built.k, built.v, backend="reference", **built.options)

    # A reach is a whole number of tokens: the steps of the differences are too small to move one
    # here.
    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax(), Entmax(1.5)], ids=str)
def test_attention_map_times_values_is_the_output(normalizer: ls.normalizers.Normalizer) -> None:
    q, k, v = (torch.randn(2, 2, n, 4) for n in (20, 30, 30))
    options = {"weight": Bell(30.0, threshold=0.5), "normalizer": normalizer}
    a = ls.attention_map(q, k, Window(8, 8), **options)  # type: ignore[arg-type]
    assert a.dtype == torch.float32 and a.shape == (2, 2, 20, 30)
    y = ls.attention(q, k, v, Window(8, 8), **options)  # type: ignore[arg-type]
    torch.testing.assert_close(a @ v, y)
