"""Sparsemax, 1.5-entmax and α-entmax as functions: values, gradients, edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import longspan as ls
from longspan import entmax, entmax15, sparsemax

from .oracle import by_bisection

ALPHAS = [1.0, 1.001, 1.1, 1.25, 1.5, 1.6180339, 1.9, 2.0]
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)
as_tensor = pytest.mark.parametrize("wrap", [float, torch.tensor], ids=["number", "tensor"])


def rows(*shape: int, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).mul(scale).to(dtype)


# ---- Values.


@every_alpha
@as_tensor
@pytest.mark.parametrize("width", [1, 2, 5, 64, 200])
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_values(alpha: float, wrap: Any, width: int, scale: float) -> None:
    x = rows(4, width, scale=scale)
    wanted = by_bisection(x, alpha)
    order = torch.tensor(alpha, dtype=torch.float64) if wrap is torch.tensor else alpha
    torch.testing.assert_close(entmax(x, order), wanted, rtol=1e-9, atol=1e-11)
    single = entmax(x.float(), wrap(alpha))
    assert single.dtype == torch.float32
    torch.testing.assert_close(
        single.double(), by_bisection(x.float(), alpha), rtol=1e-5, atol=1e-6
    )


def test_values_by_hand() -> None:
    """sparsemax(1, 0.5, −1): τ = 0.25. 1.5-entmax(0, 0) halves; of (0, −2) it takes the first."""
    torch.testing.assert_close(
        sparsemax(torch.tensor([1.0, 0.5, -1.0])), torch.tensor([0.75, 0.25, 0.0])
    )
    torch.testing.assert_close(entmax15(torch.tensor([0.0, 0.0])), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(entmax15(torch.tensor([0.0, -2.0])), torch.tensor([1.0, 0.0]))
    # [(1 − τ)² + (½ − τ)² = 1] for scores 2 and 1, halved: τ = (1.5 − √1.75)/2.
    tau = (1.5 - math.sqrt(1.75)) / 2
    torch.testing.assert_close(
        entmax15(torch.tensor([2.0, 1.0])), torch.tensor([(1 - tau) ** 2, (0.5 - tau) ** 2])
    )


def test_names_are_orders() -> None:
    x = rows(3, 9)
    assert torch.equal(sparsemax(x), entmax(x, 2.0))
    assert torch.equal(sparsemax(x), entmax(x, 2))
    assert torch.equal(entmax15(x), entmax(x, 1.5))
    torch.testing.assert_close(ls.entmax(x, 1.3), ls.normalizers.entmax(x, 1.3))


@as_tensor
def test_one_is_softmax(wrap: Any) -> None:
    x = rows(5, 40, scale=5.0)
    order = wrap(1.0)
    torch.testing.assert_close(
        entmax(x, order.double() if isinstance(order, Tensor) else order),
        x.softmax(-1),
        rtol=1e-10,
        atol=1e-14,
    )
    torch.testing.assert_close(
        entmax(x.float(), order), x.float().softmax(-1), rtol=1e-5, atol=1e-7
    )


def test_two_is_sparsemax_whichever_way() -> None:
    x = rows(5, 40)
    order = torch.tensor(2.0, dtype=torch.float64)
    torch.testing.assert_close(entmax(x, order), sparsemax(x), rtol=1e-10, atol=1e-12)
    order = torch.tensor(1.5, dtype=torch.float64)
    torch.testing.assert_close(entmax(x, order), entmax15(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("step", [1e-12, 1e-9, 1e-7, 1e-5])
def test_the_limit_at_one(step: float) -> None:
    x = rows(5, 20)
    for alpha in (1 + step, torch.tensor(1 + step, dtype=torch.float64)):
        assert (entmax(x, alpha) - x.softmax(-1)).abs().max() <= 2 * step + 1e-13
    single = entmax(x.float(), torch.tensor(1 + step)).double()
    torch.testing.assert_close(single, x.softmax(-1), rtol=1e-4, atol=1e-5)


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12),
    st.floats(1.01, 2.0) | st.sampled_from([1.0, 1.5, 2.0]),
)
def test_any_row(row: list[float], alpha: float) -> None:
    x = torch.tensor(row, dtype=torch.float64)
    p = entmax(x, alpha)
    torch.testing.assert_close(p, by_bisection(x[None], alpha)[0], rtol=1e-7, atol=1e-9)
    assert (p >= 0).all() and p.sum().item() == pytest.approx(1, abs=1e-12)
    order = x.argsort()
    assert (p[order].diff() >= -1e-12).all(), "a higher score never counts less"
    shuffled = torch.randperm(len(row))
    torch.testing.assert_close(entmax(x[shuffled], alpha), p[shuffled], rtol=1e-9, atol=1e-12)


@every_alpha
@as_tensor
@pytest.mark.parametrize("width", [1, 3, 64, 1000, 20000])
@pytest.mark.parametrize("scale", [0.001, 1.0, 30.0, 1e4])
def test_sums_to_one(alpha: float, wrap: Any, width: int, scale: float) -> None:
    p = entmax(rows(3, width, scale=scale, dtype=torch.float32), wrap(alpha))
    assert p.dtype == torch.float32
    assert (p.double().sum(-1) - 1).abs().max() <= 1e-6
    assert (p >= 0).all()


@every_alpha
def test_support(alpha: float) -> None:
    """As many entries above 0 as the definition has; all of them at α = 1, fewer and fewer."""
    x = rows(6, 50)
    p = entmax(x, alpha)
    assert torch.equal((p > 0).sum(-1), (by_bisection(x, alpha) > 0).sum(-1))
    if alpha == 1:
        assert (p > 0).all()
    else:
        assert ((p > 0) <= (entmax(x, (1 + alpha) / 2) > 0)).all()


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.75, 2.0])
def test_far_entries_are_exactly_zero(alpha: float) -> None:
    far = 1 / (alpha - 1)
    x = torch.tensor([0.0, -far, -far * 1.01, -1e30])
    assert entmax(x, alpha).tolist() == [1, 0, 0, 0]


@every_alpha
def test_ties_share(alpha: float) -> None:
    p = entmax(torch.tensor([3.0] * 4 + [-1e4]), alpha)
    torch.testing.assert_close(p, torch.tensor([0.25] * 4 + [0.0]))
    x = torch.tensor([1.0, 0.3, 1.0, 0.3, 1.0])
    p = entmax(x, alpha)
    assert p[0] == p[2] == p[4] and p[1] == p[3]
    torch.testing.assert_close(entmax(torch.zeros(1000), alpha), torch.full((1000,), 0.001))


@every_alpha
@as_tensor
def test_one_entry_is_one(alpha: float, wrap: Any) -> None:
    x = torch.tensor([[-1e4], [0.0], [1e4]], requires_grad=True)
    p = entmax(x, wrap(alpha))
    assert p.tolist() == [[1], [1], [1]]
    p.sum().backward()
    assert (x.grad == 0).all()


@every_alpha
@as_tensor
@pytest.mark.parametrize("shift", [64.0, -64.0, 1024.0, 8192.0, -8192.0])
def test_a_shift_changes_nothing(alpha: float, wrap: Any, shift: float) -> None:
    """Whole thousandths (of 1024) can be shifted by 8192 in float32 without rounding."""
    x = (rows(4, 9) * 1024).round() / 1024
    shifted = (x + shift).float()
    assert torch.equal(shifted.double(), x + shift)
    found = entmax(shifted, wrap(alpha)).double()
    torch.testing.assert_close(found, by_bisection(x, alpha), rtol=0, atol=1e-6)


@every_alpha
@as_tensor
def test_large_scores(alpha: float, wrap: Any) -> None:
    x = torch.tensor([[1e4, -1e4, 9999.0], [-1e4, -1e4, 1e4], [1e4, 1e4, -1e4]])
    p = entmax(x, wrap(alpha))
    torch.testing.assert_close(p.double(), by_bisection(x, alpha), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_alpha
def test_half_precision_is_rounded_once(alpha: float, dtype: torch.dtype) -> None:
    x = rows(4, 30, dtype=dtype)
    p = entmax(x, alpha)
    assert p.dtype == dtype
    assert torch.equal(p, entmax(x.float(), alpha).to(dtype))
    x = torch.tensor([[1e4, -1e4, 9000.0]]).to(dtype)
    assert entmax(x, alpha).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_gradients_of_its_own_dtype(dtype: torch.dtype) -> None:
    x = rows(4, 30, dtype=dtype).requires_grad_()
    alpha = torch.tensor(1.4, requires_grad=True)
    (entmax(x, alpha) * torch.arange(30)).sum().backward()
    assert x.grad.dtype == dtype and x.grad.isfinite().all()
    assert alpha.grad.dtype == torch.float32 and alpha.grad.isfinite()


# ---- Rows without pairs, and NaN.


@every_alpha
@as_tensor
def test_a_row_of_minus_infinity_is_zero(alpha: float, wrap: Any) -> None:
    x = rows(3, 5, dtype=torch.float32)
    x[1] = -math.inf
    x[2, 1:3] = -math.inf
    x.requires_grad_()
    order = wrap(alpha)
    if isinstance(order, Tensor):
        order = order.repeat(3, 1).requires_grad_()
    p = entmax(x, order)
    assert (p[1] == 0).all() and (p[2, 1:3] == 0).all()
    wanted = by_bisection(x.detach(), alpha)
    torch.testing.assert_close(p.detach().double(), wanted, rtol=1e-5, atol=1e-6)
    (p * torch.tensor([3.0, -1.0, 2.0, 0.5, 7.0])).sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[1] == 0).all() and (x.grad[2, 1:3] == 0).all()
    if isinstance(order, Tensor):
        assert order.grad.isfinite().all() and order.grad[1] == 0


@every_alpha
def test_entries_of_minus_infinity_are_as_if_absent(alpha: float) -> None:
    x = rows(6, 9)
    holes = torch.rand(6, 9) < 0.4
    holes[:, 0] = False
    p = entmax(x.masked_fill(holes, -math.inf), alpha)
    for row, hole, found in zip(x, holes, p, strict=True):
        torch.testing.assert_close(found[~hole], entmax(row[~hole], alpha), rtol=1e-10, atol=1e-12)
        assert (found[hole] == 0).all()


@every_alpha
@as_tensor
def test_nan_stays_in_its_row(alpha: float, wrap: Any) -> None:
    x = rows(3, 5, dtype=torch.float32)
    clean = entmax(x, wrap(alpha))
    x[1, 2] = math.nan
    p = entmax(x, wrap(alpha))
    assert p[1].isnan().any()
    torch.testing.assert_close(p[[0, 2]], clean[[0, 2]])


@every_alpha
def test_no_entries_are_no_entries(alpha: float) -> None:
    for shape in ((0,), (3, 0), (0, 3)):
        assert entmax(torch.zeros(shape), alpha).shape == shape


# ---- Dims and shapes.


@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
@every_alpha
def test_any_dim(alpha: float, dim: int) -> None:
    x = rows(3, 4, 5)
    wanted = by_bisection(x.movedim(dim, -1), alpha).movedim(-1, dim)
    torch.testing.assert_close(entmax(x, alpha, dim=dim), wanted, rtol=1e-9, atol=1e-11)
    if alpha == 2:
        torch.testing.assert_close(sparsemax(x, dim), wanted, rtol=1e-9, atol=1e-11)
    if alpha == 1.5:
        torch.testing.assert_close(entmax15(x, dim), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
def test_an_alpha_for_every_row_of_any_dim(dim: int) -> None:
    x = rows(3, 4, 5)
    shape = [3, 4, 5]
    shape[dim] = 1
    alpha = 1 + torch.rand(shape, dtype=torch.float64)
    wanted = by_bisection(x.movedim(dim, -1), alpha.movedim(dim, -1)).movedim(-1, dim)
    torch.testing.assert_close(entmax(x, alpha, dim=dim), wanted, rtol=1e-8, atol=1e-10)


def test_an_alpha_a_head() -> None:
    x = rows(2, 3, 4, 5)
    alpha = torch.tensor([1.0, 1.5, 2.0], dtype=torch.float64).reshape(3, 1, 1)
    p = entmax(x, alpha)
    for head, order in enumerate((1.0, 1.5, 2.0)):
        torch.testing.assert_close(p[:, head], entmax(x[:, head], order), rtol=1e-9, atol=1e-12)


def test_one_dim_and_not_contiguous() -> None:
    x = rows(5, 7)
    torch.testing.assert_close(entmax15(x[:, 3]), by_bisection(x[:, 3][None], 1.5)[0])
    torch.testing.assert_close(entmax15(x.t()), by_bisection(x.t(), 1.5))
    torch.testing.assert_close(
        entmax15(x[1:2].expand(4, 7)), by_bisection(x[1:2], 1.5).repeat(4, 1)
    )


def test_the_input_is_left_alone() -> None:
    x = rows(5, 7)
    before = x.clone()
    entmax(x, 1.3)
    sparsemax(x)
    assert torch.equal(x, before)


# ---- Gradients.


@every_alpha
@pytest.mark.parametrize("dim", [-1, 0])
def test_gradient_to_scores(alpha: float, dim: int) -> None:
    x = rows(4, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: entmax(v, alpha, dim=dim), x)


@pytest.mark.parametrize("alpha", [1.0005, 1.01, 1.1, 1.25, 1.5, 1.9, 1.999])
def test_gradient_to_scores_and_alpha(alpha: float) -> None:
    x = rows(4, 6).requires_grad_()
    order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entmax, (x, order), eps=1e-6, atol=1e-5)


def test_gradient_to_an_alpha_a_head() -> None:
    x = rows(2, 3, 2, 5).requires_grad_()
    alpha = torch.tensor([1.2, 1.5, 1.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, a: entmax(v, a.reshape(3, 1, 1)), (x, alpha))


def test_gradient_to_an_alpha_for_every_row_of_another_dim() -> None:
    x = rows(5, 4).requires_grad_()
    alpha = (1.1 + 0.8 * torch.rand(1, 4, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, a: entmax(v, a, dim=0), (x, alpha))


def test_gradient_where_alpha_has_more_rows() -> None:
    """One row of scores under three orders: the gradient is that of all three."""
    x = rows(1, 6).requires_grad_()
    alpha = torch.tensor([[1.2], [1.5], [1.8]], dtype=torch.float64, requires_grad=True)
    assert entmax(x, alpha).shape == (3, 6)
    assert torch.autograd.gradcheck(entmax, (x, alpha))


def limit_at_one(p: Tensor) -> Tensor:
    """dp/dα at α = 1: −½·p·(ln²p − Σ p·ln²p)."""
    square = p.log().square()
    return -0.5 * p * (square - (p * square).sum(-1, keepdim=True))


def slope_of_alpha(x: Tensor, alpha: float, g: Tensor) -> Tensor:
    order = torch.full((*x.shape[:-1], 1), alpha, dtype=x.dtype, requires_grad=True)
    (entmax(x, order) * g).sum().backward()
    assert order.grad is not None
    return order.grad[..., 0]


def test_alpha_gradient_at_one() -> None:
    x, g = rows(5, 8), rows(5, 8)
    wanted = (limit_at_one(x.softmax(-1)) * g).sum(-1)
    torch.testing.assert_close(slope_of_alpha(x, 1.0, g), wanted, rtol=1e-9, atol=1e-11)
    step = 1e-4
    one, two, three = (entmax(x, a) for a in (1.0, 1 + step, 1 + 2 * step))
    forward = ((-3 * one + 4 * two - three) / (2 * step) * g).sum(-1)
    torch.testing.assert_close(wanted, forward, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [1e-12, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1])
def test_alpha_gradient_near_one(step: float) -> None:
    """Neither a switch nor a lost digit on the way to the limit, in float64 and in float32."""
    x, g = rows(5, 8), rows(5, 8)
    found = slope_of_alpha(x, 1 + step, g)
    limit = (limit_at_one(x.softmax(-1)) * g).sum(-1)
    assert (found - limit).abs().max() <= 100 * step + 1e-9
    single = slope_of_alpha(x.float(), 1 + step, g.float()).double()
    torch.testing.assert_close(single, found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.01, 1.2, 1.5, 1.8, 1.99])
def test_alpha_gradient_by_finite_differences(alpha: float) -> None:
    x, g = rows(5, 8), rows(5, 8)
    step = 1e-5
    ahead, behind = by_bisection(x, alpha + step), by_bisection(x, alpha - step)
    wanted = ((ahead - behind) / (2 * step) * g).sum(-1)
    torch.testing.assert_close(slope_of_alpha(x, alpha, g), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.1, 1.5, 1.9])
def test_alpha_gradient_is_the_published_one(alpha: float) -> None:
    """Correia et al. 2019: (p − p̃)/(α−1)² − (h − p̃·Σh)/(α−1), p̃ = s/Σs, h = p·ln p."""
    x, g = rows(5, 8), rows(5, 8)
    p = by_bisection(x, alpha)
    s = torch.where(p > 0, p ** (2 - alpha), 0)
    tilde = s / s.sum(-1, keepdim=True)
    h = torch.where(p > 0, p * p.clamp(min=1e-300).log(), 0)
    slope = (p - tilde) / (alpha - 1) ** 2 - (h - tilde * h.sum(-1, keepdim=True)) / (alpha - 1)
    torch.testing.assert_close(
        slope_of_alpha(x, alpha, g), (slope * g).sum(-1), rtol=1e-6, atol=1e-8
    )


@every_alpha
def test_zeroed_entries_get_no_gradient(alpha: float) -> None:
    x = torch.tensor([2.0, 1.9, -50.0, -1e4], requires_grad=True)
    (entmax(x, alpha) * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad is not None and x.grad.sum().abs() < 1e-6
    assert (x.grad[3] == 0) and (alpha <= 1.01 or x.grad[2] == 0)


@every_alpha
def test_the_second_derivative_raises(alpha: float) -> None:
    x = rows(3, 4).requires_grad_()
    (slope,) = torch.autograd.grad(entmax(x, alpha).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()


def test_no_gradient_is_asked_for_where_none_is_wanted() -> None:
    assert not entmax(rows(2, 3), 1.5).requires_grad
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    entmax(rows(2, 3), alpha).sum().backward()
    assert alpha.grad is not None


# ---- Bad input.

X = torch.zeros(2, 5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: entmax(X, 0.9), ValueError, "alpha .*0.9"),
        (lambda: entmax(X, 2.1), ValueError, "alpha .*2.1"),
        (lambda: entmax(X, math.nan), ValueError, "alpha .*nan"),
        (lambda: entmax(X, True), TypeError, "alpha .*True"),
        (lambda: entmax(X, None), TypeError, "alpha .*None"),
        (lambda: entmax(X, "1.5"), TypeError, "alpha .*'1.5'"),
        (lambda: entmax(X, torch.tensor(1)), TypeError, "alpha .*int64"),
        (lambda: entmax(X, torch.tensor(True)), TypeError, "alpha .*bool"),
        (lambda: entmax(X, torch.tensor(0.5)), ValueError, "alpha .*0.5"),
        (lambda: entmax(X, torch.tensor([[1.5], [2.5]])), ValueError, "alpha .*2.5"),
        (lambda: entmax(X, torch.tensor(math.nan)), ValueError, "alpha .*nan"),
        (lambda: entmax(X, torch.full((5,), 1.5)), ValueError, r"alpha .*\(5,\)"),
        (lambda: entmax(X, torch.full((3, 1), 1.5)), ValueError, r"alpha .*\(3, 1\)"),
        (lambda: entmax(X, torch.full((2, 1), 1.5), dim=0), ValueError, r"alpha .*\(2, 1\)"),
        (lambda: entmax([0.0], 1.5), TypeError, "x .*list"),
        (lambda: entmax(X.long(), 1.5), TypeError, "x .*int64"),
        (lambda: entmax(X.bool(), 1.5), TypeError, "x .*bool"),
        (lambda: entmax(X.to(torch.complex64), 1.5), TypeError, "x .*complex"),
        (lambda: entmax(X, 1.5, dim=2), ValueError, "dim .*2"),
        (lambda: entmax(X, 1.5, dim=-3), ValueError, "dim .*-3"),
        (lambda: entmax(X, 1.5, dim=True), TypeError, "dim .*True"),
        (lambda: entmax(X, 1.5, dim=None), TypeError, "dim .*None"),
        (lambda: entmax(X, 1.5, dim=0.0), TypeError, "dim .*0.0"),
        (lambda: entmax(torch.tensor(1.0), 1.5), ValueError, "dim|x"),
        (lambda: sparsemax(X.long()), TypeError, "x .*int64"),
        (lambda: sparsemax(X, 7), ValueError, "dim .*7"),
        (lambda: entmax15([0.0]), TypeError, "x .*list"),
        (lambda: entmax15(X, dim="a"), TypeError, "dim .*'a'"),
    ],
)
def test_bad_input(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
