"""Full attention by PyTorch's kernels beside our own."""

from __future__ import annotations

import pytest
import torch

from longspan.nn import Attention, FullAttention, Setting
from longspan.nn.describing import described, mechanism_from
from longspan.patterns import Causal, Full
from longspan.weights import Bias


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("n", "key_heads"), [(9, 4), (5, 2)])
def test_the_same_as_attention(causal: bool, padded: bool, n: int, key_heads: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(3, 4, n, 8, requires_grad=True)
    k, v = (torch.randn(3, key_heads, 9, 8, requires_grad=True) for _ in range(2))
    real = torch.ones(3, 9, dtype=torch.bool)
    real[1, 6:] = False
    real[2] = False
    setting = Setting(key_padding=real if padded else None)
    grad = torch.randn(3, 4, n, 8)
    ours = Attention(Causal() if causal else Full())(q, k, v, setting)
    theirs = FullAttention(causal=causal)(q, k, v, setting)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    for own, wanted in zip(
        torch.autograd.grad(theirs, (q, k, v), grad),
        torch.autograd.grad(ours, (q, k, v), grad),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted, atol=1e-5, rtol=1e-5)


def test_padding_as_on_a_gpu() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 4, 9, 8, requires_grad=True) for _ in range(3))
    real = torch.ones(3, 9, dtype=torch.bool)
    real[1, 6:] = False
    real[2] = False
    theirs = FullAttention()._by_pytorch(q, k, v, Setting(key_padding=real), 0.0)
    ours = Attention()(q, k, v, Setting(key_padding=real))
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    for own, wanted in zip(
        torch.autograd.grad(theirs.square().sum(), (q, k, v)),
        torch.autograd.grad(ours.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(own, wanted, atol=1e-5, rtol=1e-5)


def test_weights_of_a_layer_count() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    setting = Setting(weights=(Bias(torch.randn(1, 2, 6, 6)),))
    torch.testing.assert_close(FullAttention()(q, k, v, setting), Attention()(q, k, v, setting))


def test_dropout_in_training_alone() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    made, setting = FullAttention(), Setting(dropout=0.5)
    assert not torch.equal(made(q, k, v, setting), made(q, k, v))
    assert torch.equal(made.eval()(q, k, v, setting), made(q, k, v))


def test_it_is_described_and_made_again() -> None:
    made = mechanism_from(described(FullAttention(causal=True)))
    assert isinstance(made, FullAttention) and made.causal and not FullAttention().causal
    with pytest.raises(TypeError, match="causal must be True or False"):
        FullAttention(causal=1)  # type: ignore[arg-type]
