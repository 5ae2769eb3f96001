"""Budgets by kernels: the factor that `nn.budgets` finds by sorting, what tokens get by it, and
gradients.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.functional.window import budget_op, left_to_torch, takes_budget, window_budget
from longspan.kernels import triton as triton_backend
from longspan.kernels.triton.window import Budget
from longspan.nn import LearnedWindow, Setting
from longspan.nn.budgets import common_factor
from longspan.nn.reach_budget import ReachBudget

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH = -2 * math.log(0.5)

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    *([pytest.mark.gpu] if DEVICE.type == "cuda" else []),
]


@pytest.fixture(params=["one", "many"])
def cut(request: pytest.FixtureRequest) -> Any:
    """A sample in one program, or in several, of some steps each."""
    from longspan.kernels.triton.factor import Cut

    return Cut() if request.param == "one" else Cut(whole=1, part=40, parts=4, block=16)


def budget_of(
    mean: float, most: float, squared: bool = False, width: float = 0.0, start: float = 3.5
) -> Budget:
    power = 2 if squared else 1
    return Budget(mean**power, most**power, squared, most, start, width)


def shares_of(shape: tuple[int, ...], spread: float) -> Tensor:
    return (torch.randn(shape, device=DEVICE) * spread).exp()


def by_sorting(
    shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget
) -> tuple[Tensor, Tensor, Tensor]:
    """Results, the factor and the gradient's leaf, all in float64."""
    batch, heads, n = shares.shape
    counts = torch.ones(batch, n, dtype=torch.bool, device=DEVICE) if real is None else real
    counts = counts if whole is None else counts & ~whole
    leaf = shares.detach().double().requires_grad_()
    own = leaf.reshape(batch, -1)
    cap = own.new_full((1, 1), budget.cap)
    total = counts.sum(-1).double() * heads * budget.mean
    each = counts[:, None].expand(batch, heads, n).reshape(batch, -1)
    c = common_factor(own.square() if budget.squared else own, cap, total, each)
    c = c.sqrt() if budget.squared else c
    c = torch.where(c > 0, c, budget.start)
    reach = c[:, None, None] * leaf
    return (reach.square() / budget.width if budget.width else reach), c, leaf


def near(found: Tensor, wanted: Tensor, rtol: float) -> None:
    torch.testing.assert_close(
        found.double(), wanted.detach(), rtol=rtol, atol=rtol * float(wanted.detach().abs().max())
    )


def check(
    shares: Tensor, real: Tensor | None, whole: Tensor | None, budget: Budget, cut: Any
) -> Tensor:
    from longspan.kernels.triton import factor

    out, capped, state = factor.budgeted(shares, real, whole, budget, cut)
    wanted, c, leaf = by_sorting(shares, real, whole, budget)
    torch.testing.assert_close(state[:, 0], c.detach(), rtol=1e-8, atol=0)
    near(out, wanted, 3e-7)
    reach = c[:, None, None] * leaf
    near(capped, reach.clamp(max=budget.most), 3e-7)
    grad = torch.randn_like(out)
    (right,) = torch.autograd.grad(wanted, leaf, grad.double())
    found = factor.budget_gradient(shares, real, whole, budget, state, grad, cut)
    # Where it is 0, it is the difference of two equal numbers.
    least = 1e-12 * float((c.detach()[:, None, None] * grad).abs().max())
    bound = max(3e-6 * float(right.abs().max()), least)
    torch.testing.assert_close(found.double(), right, rtol=3e-6, atol=bound)
    return state


@pytest.mark.parametrize("width", [0.0, WIDTH])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 3.0])
def test_values_and_gradients(spread: float, squared: bool, width: float, cut: Any) -> None:
    shares = shares_of((2, 3, 41), spread)
    real, whole = (torch.rand(2, 41, device=DEVICE) < part for part in (0.8, 0.1))
    check(shares, None, None, budget_of(5.0, 6.0, squared, width), cut)
    check(shares, real, whole, budget_of(5.0, 9.0, squared, width), cut)
    if width:
        check(shares, real, None, budget_of(5.0, 20.0, squared, width), cut)
        check(shares, None, whole, budget_of(5.0, 6.0, squared, width), cut)


def test_masks_of_any_strides(cut: Any) -> None:
    shares = shares_of((2, 2, 20), 1.0)
    long = torch.rand(2, 33, device=DEVICE) < 0.7
    turned = (torch.rand(20, 2, device=DEVICE) < 0.7).t()
    shared = (torch.rand(1, 20, device=DEVICE) < 0.3).expand(2, 20)
    check(shares, long[:, -20:], shared, budget_of(5.0, 9.0), cut)
    check(shares, turned, None, budget_of(5.0, 9.0), cut)
    check(shares[:, :1].expand(2, 2, 20), turned, None, budget_of(5.0, 9.0), cut)


@pytest.mark.parametrize("squared", [False, True])
def test_everyone_has_the_cap(squared: bool, cut: Any) -> None:
    from longspan.kernels.triton import factor

    shares, budget = shares_of((2, 2, 30), 1.0), budget_of(7.0, 7.0, squared)
    out, capped, state = factor.budgeted(shares, None, None, budget, cut)
    c = 7.0 / shares.double().amin((1, 2))
    torch.testing.assert_close(state[:, 0], c, rtol=1e-12, atol=0)
    torch.testing.assert_close(capped, torch.full_like(capped, 7.0))
    # The factor follows no share then.
    grad = torch.randn_like(out)
    found = factor.budget_gradient(shares, None, None, budget, state, grad, cut)
    near(found, c[:, None, None] * grad.double(), 1e-6)


def test_nothing_to_share_out(cut: Any) -> None:
    shares = shares_of((3, 2, 20), 1.0)
    real = torch.ones(3, 20, dtype=torch.bool, device=DEVICE)
    real[1] = False
    whole = torch.zeros_like(real)
    whole[2] = True
    state = check(shares, real, whole, budget_of(5.0, 9.0), cut)
    assert state[1:, 0].tolist() == [3.5, 3.5] and state[1:, 1].tolist() == [0.0, 0.0]


def test_one_token(cut: Any) -> None:
    check(shares_of((2, 1, 1), 1.0), None, None, budget_of(5.0, 9.0), cut)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("mean", "most"), [(5.0, 6.0), (5.0, 9.0), (5.0, 50.0)])
def test_ties(mean: float, most: float, squared: bool, cut: Any) -> None:
    """Tokens with one share are capped together, and the budget is met."""
    shares = torch.tensor([0.5, 2.0, 8.0], device=DEVICE).repeat(1, 2, 14)
    check(shares, None, None, budget_of(mean, most, squared), cut)


@pytest.mark.parametrize("shift", [-60.0, -20.0, -8.0, 8.0, 20.0, 60.0])
@pytest.mark.parametrize("squared", [False, True])
def test_shares_of_any_size(shift: float, squared: bool, cut: Any) -> None:
    """Far from what the first factors are tried for, programs go on by themselves."""
    shares = (torch.randn(2, 2, 30, device=DEVICE) * 2 + shift).exp()
    check(shares, None, None, budget_of(5.0, 8.0, squared), cut)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("where", ["one", "padding", "all"])
def test_it_ends_whatever_the_shares(bad: float, where: str, cut: Any) -> None:
    from longspan.kernels.triton import factor

    shares = shares_of((2, 2, 30), 1.0)
    real = torch.ones(2, 30, dtype=torch.bool, device=DEVICE)
    real[0, 7] = where != "padding"
    clean = shares.clone()
    shares[0, 0, 7] = bad
    if where == "all":
        shares[0] = bad
    budget = budget_of(5.0, 8.0)
    out, _, state = factor.budgeted(shares, real, None, budget, cut)
    factor.budget_gradient(shares, real, None, budget, state, torch.ones_like(out), cut)
    # No sample learns of another's, and nothing of what does not count.
    right = by_sorting(clean, real, None, budget)[1].detach()
    torch.testing.assert_close(state[1, 0], right[1], rtol=1e-8, atol=0)
    if where == "padding":
        torch.testing.assert_close(state[0, 0], right[0], rtol=1e-8, atol=0)
    elif math.isnan(bad):
        assert state[0, 0] == budget.start
        assert out[0].isnan().sum() == (60 if where == "all" else 1)


def test_the_same_bits_again(cut: Any) -> None:
    from longspan.kernels.triton import factor

    shares, budget = shares_of((2, 3, 50), 1.0), budget_of(5.0, 8.0, width=WIDTH)
    grad = torch.randn_like(shares)
    found = []
    for _ in range(2):
        out, capped, state = factor.budgeted(shares, None, None, budget, cut)
        to = factor.budget_gradient(shares, None, None, budget, state, grad, cut)
        found.append((out, capped, state, to))
    assert all(map(torch.equal, *found))


def test_one_program_is_as_many() -> None:
    from longspan.kernels.triton.factor import Cut, budgeted

    shares, budget = shares_of((3, 2, 300), 1.5), budget_of(5.0, 8.0)
    one = budgeted(shares, None, None, budget, Cut())
    many = budgeted(shares, None, None, budget, Cut(whole=1, part=128, parts=4, block=64))
    torch.testing.assert_close(one[2][:, 0], many[2][:, 0], rtol=1e-8, atol=0)


def test_operator() -> None:
    shares = shares_of((2, 2, 9), 1.0).requires_grad_()
    real = torch.rand(2, 9, device=DEVICE) < 0.8
    budget = budget_of(5.0, 8.0, width=WIDTH)
    torch.library.opcheck(
        budget_op,
        (shares, real, None, *budget),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )

    def traced(x: Tensor) -> Tensor:
        found: Tensor = budget_op(x, real, None, *budget)[0]
        return found

    wanted, capped, state = window_budget(shares, real, None, budget)
    assert not capped.requires_grad and not state.requires_grad
    found = torch.compile(traced, backend="aot_eager", fullgraph=True)(shares)
    assert torch.equal(found, wanted)
    one, two = (torch.autograd.grad(x.square().sum(), shares)[0] for x in (found, wanted))
    assert torch.equal(one, two)


def widths(made: LearnedWindow, q: Tensor, setting: Setting) -> list[Tensor]:
    """A layer's variances and reaches, and the gradients."""
    bell = made.asks(q, q.shape[2], setting).weight[0]
    variance, reach = vars(bell)["variance"], made.last_reach
    torch.manual_seed(7)
    loss = (variance * torch.randn(variance.shape, device=DEVICE)).sum()
    leaves = [q, made.W_p, made.U_d]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    assert reach is not None and not reach.requires_grad
    return [variance.detach(), reach, *(x for x in found if x is not None)]


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reach_budget.takes_budget", "reach_network.takes_network"):
        monkeypatch.setattr(f"longspan.nn.{name}", lambda *given: False)


def test_kernels_can_be_left_out() -> None:
    shares = shares_of((1, 2, 5), 1.0)
    assert takes_budget(shares)
    with left_to_torch():
        assert not takes_budget(shares)
    assert takes_budget(shares)


@pytest.mark.parametrize("shared", [None, "heads", "tokens"])
@pytest.mark.parametrize("budget", ["reach", "variance", "pairs", None])
def test_layer(budget: Any, shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"initial_variance": 9.0} if budget is None else {}
    made = LearnedWindow(
        32, 2, mean_reach=5, max_reach=12, budget=budget, shared=shared, **start
    ).to(DEVICE)
    with torch.no_grad():
        made.U_d.normal_()
    q = torch.randn(2, 30, 2, 16, device=DEVICE).transpose(1, 2).requires_grad_()
    real = torch.rand(2, 30, device=DEVICE) < 0.8
    setting = Setting(key_padding=real, global_tokens=torch.rand(2, 30, device=DEVICE) < 0.1)
    found = widths(made, q, setting)
    reach = made.reaches(q, setting)
    without_kernels(monkeypatch)
    # What all tokens share adds up gradients that cancel each other.
    tolerance = 3e-4 if shared == "tokens" else 3e-6
    for mine, wanted in zip(found, widths(made, q, setting), strict=True):
        near(mine, wanted.double(), tolerance)
    near(reach.detach(), made.reaches(q, setting).double(), 1e-6)


@pytest.mark.parametrize("budget", ["reach", "variance"])
def test_traced_layer(budget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a break, and once for all lengths."""
    for name in ("reach_budget.takes_budget", "reach_network.takes_network"):
        monkeypatch.setattr(f"longspan.nn.{name}", lambda *given: True)
    made = LearnedWindow(32, 2, mean_reach=5, max_reach=12, budget=budget).to(DEVICE)
    with torch.no_grad():
        made.U_d.normal_()
    forward = made._widths
    traced = torch.compile(forward, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (30, 41):
        q = torch.randn(2, n, 2, 16, device=DEVICE).transpose(1, 2).requires_grad_()
        real = torch.rand(2, n, device=DEVICE) < 0.8
        setting = Setting(key_padding=real, global_tokens=torch.rand(2, n, device=DEVICE) < 0.1)
        both = [forward(q, setting), traced(q, setting)]
        assert all(map(torch.equal, *both))
        leaves = [q, made.W_p, made.U_d]
        found = [torch.autograd.grad(x[0].square().sum(), leaves) for x in both]
        assert all(map(torch.equal, *found))


@pytest.mark.parametrize("budget", ["reach", "variance"])
def test_running_factor(budget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shares, factor = shares_of((2, 2, 30), 1.0), torch.ones(1, dtype=torch.float64, device=DEVICE)
    own = ReachBudget(budget, 5.0, 12, 1.0, causal=True, sided=False)
    factors = [own.followed(factor, shares, Setting())]
    without_kernels(monkeypatch)
    factors.append(own.followed(factor, shares, Setting()))
    assert not torch.equal(factors[0], factor)
    torch.testing.assert_close(*factors, rtol=1e-6, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 12, 384), (4, 12, 4096), (1, 12, 16384), (3, 5, 3001)])
@pytest.mark.parametrize("squared", [False, True])
def test_real_sizes(shape: tuple[int, int, int], squared: bool) -> None:
    from longspan.kernels.triton.factor import Cut

    real = torch.arange(shape[2], device=DEVICE) < torch.randint(
        shape[2] // 2, shape[2] + 1, (shape[0], 1), device=DEVICE
    )
    for spread in (0.0, 0.3, 1.0, 2.5):
        shares = shares_of(shape, spread)
        for most in (160.0, 256.0, 1024.0):
            check(shares, real, None, budget_of(128.0, most, squared, WIDTH), Cut())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(64, 12, 384, 32), (1, 12, 16384, 32), (2, 4, 2001, 64)])
def test_layer_of_real_size(
    shape: tuple[int, int, int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, heads, n, size = shape
    made = LearnedWindow(heads * size, heads).to(DEVICE)
    with torch.no_grad():
        made.U_d.normal_(std=size**-0.5)
    q = torch.randn(batch, n, heads, size, device=DEVICE).to(dtype).transpose(1, 2)
    q.requires_grad_()
    found = widths(made, q, Setting())
    without_kernels(monkeypatch)
    for mine, wanted in zip(found, widths(made, q, Setting()), strict=True):
        near(mine, wanted.double(), 1e-2 if wanted.dtype == torch.bfloat16 else 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [300, 9000])
def test_in_a_graph(n: int) -> None:
    made = LearnedWindow(64, 2).to(DEVICE)
    with torch.no_grad():
        made.U_d.normal_()
    q = torch.randn(2, 2, n, 32, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    setting = Setting(key_padding=torch.rand(2, n, device=DEVICE) < 0.9)

    def step() -> list[Tensor]:
        out = made.reaches(q, setting)
        found = torch.autograd.grad(out.square().sum(), [q, made.W_p, made.U_d])
        # Without its graph, which belongs to the stream that it was made in.
        return [out.detach(), *found]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        q.copy_(torch.randn_like(q))
    graph.replay()
    for mine, wanted in zip(found, step(), strict=True):
        assert torch.equal(mine, wanted)
