"""Shares of the learned window by kernels: as the layer's own network, and its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.functional.window import shares_op, takes_network, window_shares
from longspan.kernels import triton as triton_backend
from longspan.kernels.triton import window
from longspan.nn import LearnedWindow

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    *([pytest.mark.gpu] if DEVICE.type == "cuda" else []),
]


def network(q: Tensor, w: Tensor, u: Tensor) -> Tensor:
    hidden = torch.tanh(torch.einsum("bhnd,hde->bhne", q, w))
    return torch.einsum("bhne,he->bhn", hidden, u).exp()


def inputs(
    batch: int, heads: int, n: int, size: int, dtype: torch.dtype = FP32
) -> tuple[Tensor, Tensor, Tensor]:
    """As a layer gives them: heads are a view of `(B, N, H, D)`."""
    q = torch.randn(batch, n, heads, size, device=DEVICE).to(dtype).transpose(1, 2)
    w = torch.randn(heads, size, size, device=DEVICE) / size**0.5
    return q, w, torch.randn(heads, size, device=DEVICE) / size**0.5


def gradients(
    made: Any, given: tuple[Tensor, ...], grad: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    leaves = [x.detach().requires_grad_() for x in given]
    found = made(*leaves)
    grad = torch.ones_like(found) if grad is None else grad
    return found.detach(), list(torch.autograd.grad(found, leaves, grad.to(found.dtype)))


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


def check(given: tuple[Tensor, ...], grad: Tensor | None = None) -> None:
    """Is it as near to float64 as the same in float32? Gradients of q are rounded to its dtype."""
    dtype = given[0].dtype
    found, ours = gradients(window_shares, given, grad)
    exact, wanted = gradients(network, tuple(x.double() for x in given), grad)
    plain, theirs = gradients(network, tuple(x.float() for x in given), grad)
    assert found.dtype == torch.float32 and found.is_contiguous()
    assert off(found, exact) <= 2 * off(plain, exact) + 5e-7
    eps = torch.finfo(dtype).eps if dtype != FP32 else 1e-6
    for mine, right, other, spare in zip(ours, wanted, theirs, (eps, 1e-6, 1e-6), strict=True):
        assert off(mine, right) <= 3 * off(other, right) + spare
    assert ours[0].dtype == dtype


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16])
@pytest.mark.parametrize(("size", "n"), [(4, 1), (16, 64), (24, 70), (32, 129)])
def test_values_and_gradients(size: int, n: int, dtype: torch.dtype) -> None:
    given = inputs(2, 3, n, size, dtype)
    check(given, torch.randn(2, 3, n, device=DEVICE))


def test_wide_heads() -> None:
    check(inputs(1, 1, 40, 100, BF16), torch.randn(1, 1, 40, device=DEVICE))


def test_near_zero_and_far_from_it() -> None:
    q, w, u = inputs(1, 2, 40, 8)
    for scale in (1e-12, 1e-4, 0.6, 40.0):
        check((q * scale, w, u))


def test_strides() -> None:
    q, w, u = inputs(2, 3, 20, 16)
    wanted = window_shares(q, w, u)
    apart = torch.randn(2, 20, 3, 3, 16, device=DEVICE)
    apart[:, :, 1] = q.transpose(1, 2)
    turned = q.transpose(2, 3).contiguous().transpose(2, 3)
    for same in (q.contiguous(), apart[:, :, 1].transpose(1, 2), turned):
        assert torch.equal(window_shares(same, w, u), wanted)
    # A gradient that is one number for all, and a query that all heads share.
    check(
        (q[:, :1].expand(2, 3, 20, 16), w, u), torch.ones(1, 1, 1, device=DEVICE).expand(2, 3, 20)
    )


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 1)])
@pytest.mark.parametrize("size", [16, 100])
def test_only_what_is_wanted(size: int, wanted: tuple[int, ...]) -> None:
    given = inputs(1, 2, 20, size, BF16)
    _, all_of_them = gradients(window_shares, given, None)
    leaves = [x.clone().requires_grad_(bool(want)) for x, want in zip(given, wanted, strict=True)]
    window_shares(*leaves).sum().backward()
    for leaf, whole, want in zip(leaves, all_of_them, wanted, strict=True):
        assert (leaf.grad is not None) == bool(want)
        if leaf.grad is not None:
            assert torch.equal(leaf.grad, whole)


def test_the_same_bits_again() -> None:
    given = inputs(3, 2, 90, 16)
    one, two = gradients(window_shares, given, None), gradients(window_shares, given, None)
    assert torch.equal(one[0], two[0])
    assert all(map(torch.equal, one[1], two[1]))


def test_nan_stays_in_its_row() -> None:
    q, w, u = inputs(1, 2, 70, 8)
    q[0, 1, 5] = torch.nan
    found = window_shares(q, w, u).isnan()
    assert found[0, 1, 5] and found.sum() == 1


def test_what_is_taken() -> None:
    q, w, u = inputs(1, 2, 4, 8)
    assert takes_network(q, w, u) and takes_network(q.bfloat16(), w.bfloat16(), u)
    assert not takes_network(q.double(), w, u)
    assert not takes_network(q[:, :, :0], w, u)
    assert not takes_network(*inputs(1, 2, 4, 100))
    assert not takes_network(*inputs(1, 2, 4, 129, BF16))


def test_no_gradient_keeps_nothing() -> None:
    q, w, u = inputs(1, 2, 4, 8)
    with torch.no_grad():
        assert window_shares(q, w.requires_grad_(), u).grad_fn is None


@pytest.mark.parametrize("frozen", [False, True])
def test_operator(frozen: bool) -> None:
    q, w, u = inputs(2, 2, 9, 8)
    given = (q.requires_grad_(), w.requires_grad_(not frozen), u.requires_grad_(not frozen))
    torch.library.opcheck(
        shares_op,
        given,
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
    leaves = [x for x in given if x.requires_grad]
    eager = torch.autograd.grad(window_shares(*given).sum(), leaves)
    traced = torch.compile(shares_op, backend="aot_eager", fullgraph=True)
    for mine, wanted in zip(torch.autograd.grad(traced(*given).sum(), leaves), eager, strict=True):
        assert torch.equal(mine, wanted)


def test_no_second_derivative() -> None:
    q, w, u = inputs(1, 2, 4, 8)
    (first,) = torch.autograd.grad(
        window_shares(q.requires_grad_(), w, u).sum(), q, create_graph=True
    )
    with pytest.raises((RuntimeError, NotImplementedError)):
        first.sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "heads", "n", "size"),
    [(64, 12, 384, 32), (1, 12, 16384, 32), (2, 16, 4096, 64), (2, 5, 1001, 96), (2, 4, 2049, 128)],
)
@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
def test_real_sizes(batch: int, heads: int, n: int, size: int, dtype: torch.dtype) -> None:
    given = inputs(batch, heads, n, size, dtype)
    if not takes_network(*given):
        pytest.skip("left to torch")
    check(given, torch.randn(batch, heads, n, device=DEVICE) / n)


@pytest.mark.gpu
def test_compiled_layer() -> None:
    made = LearnedWindow(64, 4, mean_reach=8, max_reach=16).to(DEVICE)
    with torch.no_grad():
        made.U_d.normal_()
    traced = torch.compile(made.reaches, fullgraph=True, dynamic=True)
    for n in (200, 150):
        q = torch.randn(2, 4, n, 16, device=DEVICE, dtype=BF16, requires_grad=True)
        leaves = [q, made.W_p, made.U_d]
        wanted = torch.autograd.grad(made.reaches(q).square().sum(), leaves)
        found = torch.autograd.grad(traced(q).square().sum(), leaves)
        for mine, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-3)


def test_interpreter_is_for_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    q, w, u = (x.cpu() for x in inputs(1, 2, 4, 8))
    assert not window.takes_network(q, w, u)
