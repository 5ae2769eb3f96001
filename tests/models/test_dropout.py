"""Dropout of activations: the share that goes, the draws, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from longspan.kernels import cpu
from longspan.kernels.cpu import launch
from longspan.kernels.cpu.dropout import dropout
from longspan.kernels.philox import philox
from longspan.models.dropout import Dropout

needs_native = pytest.mark.skipif(not cpu.available(), reason="the compiled module was not built")


def expected(x: Tensor, p: float, seed: int) -> Tensor:
    """By the definition, number by number."""
    place = torch.arange(x.numel())
    zero = torch.zeros_like(place)
    counter = [place >> 2, place >> 34, zero, zero]
    key = [torch.tensor(seed & 0xFFFFFFFF), torch.tensor(seed >> 32)]
    words = torch.stack(philox(counter, key), -1).gather(-1, (place & 3)[:, None])[:, 0]
    kept = (words >= int(p * 2**32)).view(x.shape)
    scale = torch.tensor(1 / (1 - p), dtype=torch.float32)
    return torch.where(kept, x.float() * scale, 0).to(x.dtype)


@needs_native
@pytest.mark.parametrize("instructions", cpu.instruction_sets())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (64,), (7, 33), (3, 50, 1000)])
def test_it_draws_as_attention_does(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    instructions: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "INSTRUCTIONS", instructions)
    x = torch.randn(shape).to(dtype)
    for p, seed in ((0.1, 3), (0.5, 2**62 + 12345)):
        assert torch.equal(dropout(x, p, seed), expected(x, p, seed))


@needs_native
def test_bfloat16_keeps_what_is_not_a_number() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0e38] * 16, dtype=torch.bfloat16)
    found = dropout(x, 0.3, 1)
    assert torch.equal(found.nan_to_num(), expected(x, 0.3, 1).nan_to_num())
    assert found.isnan().any() and found.isinf().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_shares_and_gradients(dtype: torch.dtype) -> None:
    x = torch.ones(500, 400, dtype=dtype, requires_grad=True)
    y = Dropout(0.25)(x)
    kept = y.detach() != 0
    assert float(kept.double().mean()) == pytest.approx(0.75, abs=0.01)
    assert y[kept].unique().tolist() == pytest.approx([4 / 3], rel=0.01)
    upstream = torch.randn(500, 400).to(dtype)
    (found,) = torch.autograd.grad(y, x, upstream)
    assert torch.equal(found == 0, ~kept | (upstream == 0))
    torch.testing.assert_close(found[kept], (upstream * y.detach())[kept])


def test_rows_that_do_not_lie_together() -> None:
    x = torch.randn(30, 40).t().requires_grad_()
    y = Dropout(0.5)(x)
    kept = y.detach() != 0
    torch.testing.assert_close(y.detach()[kept], 2 * x.detach()[kept])
    (found,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(found, 2.0 * kept)


def test_there_is_a_second_derivative() -> None:
    x = torch.randn(8, 64, requires_grad=True)
    (once,) = torch.autograd.grad(Dropout(0.5)(x).square().sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad(once.sum(), x)
    kept = once.detach() != 0
    torch.testing.assert_close(twice, 8.0 * kept)


def test_the_generator_decides() -> None:
    x, drop = torch.randn(70, 90), Dropout(0.4)
    torch.manual_seed(5)
    first, second = drop(x), drop(x)
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    try:
        assert torch.equal(drop(x), first)
    finally:
        torch.set_num_threads(threads)
    assert not torch.equal(first, second)
    assert torch.equal(drop.eval()(x), x)


def test_what_is_computed_again_is_the_same() -> None:
    layer = nn.Sequential(nn.Linear(32, 32), Dropout(0.5))
    x = torch.randn(100, 32, requires_grad=True)

    def gradient(recomputed: bool) -> Tensor:
        torch.manual_seed(2)
        y = checkpoint(layer, x, use_reentrant=False) if recomputed else layer(x)
        (found,) = torch.autograd.grad(y.square().sum(), x)
        return found

    assert torch.equal(gradient(True), gradient(False))


def test_compilers_and_transforms_see_pytorchs_own() -> None:
    drop = Dropout(0.5)
    x = torch.randn(6, 8)
    compiled = torch.compile(drop, backend="eager", fullgraph=True)
    assert (compiled(x) == 0).any()
    mapped = torch.func.vmap(drop, randomness="different")(x)
    assert mapped.shape == x.shape
    for other in (Dropout(0.0), Dropout(1.0), Dropout(0.5, inplace=True)):
        y = other(x.clone())
        assert y.shape == x.shape
    assert Dropout(1.0)(x).abs().sum() == 0
