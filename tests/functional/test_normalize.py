"""The plain functions, on whatever runs them, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan import normalizers
from longspan.kernels import cpu
from longspan.kernels.cpu import launch

ALPHAS = (1.0, 1.001, 1.1, 1.3, 1.5, 1.8, 2.0)


@pytest.fixture(autouse=True, params=cpu.instruction_sets() if cpu.available() else [""])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INSTRUCTIONS", request.param)


def gradients(p: Tensor, *leaves: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    return list(torch.autograd.grad(p, leaves, torch.randn(p.shape, dtype=torch.float64).to(p)))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 16), (4, 33), (2, 1000), (70, 64)])
def test_value_and_gradient(shape: tuple[int, int], alpha: float) -> None:
    x = (torch.randn(shape) * 3).requires_grad_()
    wide = x.detach().double().requires_grad_()
    p, want = ls.entmax(x, alpha), normalizers.entmax(wide, alpha)
    torch.testing.assert_close(p.double(), want, atol=2e-6, rtol=2e-5)
    assert ((p.sum(-1) - 1).abs() <= 1e-6).all()
    (found,), (true,) = gradients(p, x), gradients(want, wide)
    torch.testing.assert_close(found.double(), true, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_learned_alpha(dim: int) -> None:
    x = torch.randn(6, 9, 5).requires_grad_()
    shape = [6, 9, 5]
    shape[dim] = 1
    alpha = (torch.rand(shape) * 0.45 + 1.02).requires_grad_()
    wide = [t.detach().double().requires_grad_() for t in (x, alpha)]
    p, want = ls.entmax(x, alpha, dim), normalizers.entmax(*wide, dim)
    torch.testing.assert_close(p.double(), want, atol=2e-6, rtol=2e-5)
    for found, true in zip(gradients(p, x, alpha), gradients(want, *wide), strict=True):
        torch.testing.assert_close(found.double(), true, atol=1e-4, rtol=1e-3)


def test_shared_alpha_has_one_gradient() -> None:
    x, alpha = torch.randn(4, 5, 8), torch.tensor(1.4, requires_grad=True)
    wide = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    (found,) = gradients(ls.entmax(x, alpha), alpha)
    (true,) = gradients(normalizers.entmax(x.double(), wide), wide)
    assert found.shape == () and float(found) == pytest.approx(float(true), rel=1e-4, abs=1e-5)


def test_edges() -> None:
    x = torch.tensor(
        [
            [-torch.inf, -torch.inf, -torch.inf],
            [0.0, -torch.inf, 0.0],
            [1e4, -1e4, 1e4 - 1],
            [torch.nan, 0.0, 1.0],
        ]
    )
    for alpha in ALPHAS:
        p = ls.entmax(x, alpha)
        assert (p[0] == 0).all() and p[1].tolist() == [0.5, 0, 0.5]
        assert p[2, 1] == 0 and float(p[2].sum()) == pytest.approx(1)
        assert p[3].isnan().all()
    assert ls.entmax(torch.zeros(0, 4), 1.5).shape == (0, 4)


def test_low_precision_stays() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(3, 20).to(dtype)
        assert torch.equal(ls.entmax15(x), ls.entmax15(x.float()).to(dtype))


def test_threads_change_nothing(any_order: None) -> None:
    x = torch.randn(500, 300)
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(ls.entmax(x, 1.3))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*lru_cache.*:UserWarning")
def test_compiles() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, a: ls.entmax(x, a).square().sum(-1), fullgraph=True, backend="aot_eager"
    )
    for n in (8, 9, 20):
        x, alpha = torch.randn(n, 12, requires_grad=True), torch.tensor(1.3, requires_grad=True)
        torch.testing.assert_close(compiled(x, alpha), ls.entmax(x, alpha).square().sum(-1))
        compiled(x, alpha).sum().backward()


def test_double_backward_raises() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    (g,) = torch.autograd.grad(ls.entmax15(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        g.sum().backward()


# Torch prepares for forward derivatives by what it warns of itself.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, "learned"])
def test_transforms(alpha: float | str, dtype: torch.dtype) -> None:
    """Of `torch.func`: what autograd gives, for all examples and for each."""
    x = torch.randn(3, 4, 6, dtype=dtype)
    order = torch.rand(3, 4, 1, dtype=dtype) * 0.9 + 1.05 if alpha == "learned" else None

    def own(x: Tensor, order: Tensor | None) -> Tensor:
        return ls.entmax(x, alpha if order is None else order)  # type: ignore[arg-type]

    def loss(x: Tensor, order: Tensor | None) -> Tensor:
        return own(x, order).pow(3).sum()

    known = [t.clone().requires_grad_() for t in (x, order) if t is not None]
    wanted = torch.autograd.grad(loss(known[0], known[1] if order is not None else None), known)
    numbers = tuple(range(len(known)))
    dims = (0, None if order is None else 0)
    for found in (
        torch.func.grad(loss, argnums=numbers)(x, order),
        torch.func.vmap(torch.func.grad(loss, argnums=numbers), in_dims=dims)(x, order),
    ):
        for have, want in zip(found, wanted, strict=True):
            torch.testing.assert_close(have, want)
    torch.testing.assert_close(torch.func.vmap(own, in_dims=dims)(x, order), own(x, order))
    one = None if order is None else order[0]
    found = torch.func.vmap(own, in_dims=(0, None))(x, one)
    torch.testing.assert_close(found, torch.stack([own(each, one) for each in x]))
    with pytest.raises(RuntimeError, match="twice"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x, order).sum())(x)
    with pytest.raises(RuntimeError, match="forward mode"):
        torch.func.jvp(lambda x: own(x, order), (x,), (x,))
