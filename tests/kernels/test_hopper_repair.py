"""What computes rows and keys again after the kernels for Hopper, against the reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.kernels import triton as triton_backend
from longspan.patterns import Causal, Full, Global, Pattern, Window
from longspan.weights import Bell

from .intervals import Asked, ask, bells, padded

if TYPE_CHECKING:
    from longspan.kernels.triton.hopper.intervals import RowFacts

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are not interpreted here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

# What nobody computes: it stays where nothing is repaired.
MARK = 1234.0


class Right:
    """What the reference says of a problem, in float64 on the same numbers.

    Attributes:
        out, dq, dk, dv: of the gradient `grad`. `to_bells` is each row's share of the variance's
            gradient, or None.
        limits: log-sum-exps, times log2(e), without the normalisation of bells.
        stats: what the kernel of queries leaves for that of keys.
    """

    def __init__(self, asked: Asked) -> None:
        from longspan.kernels.triton.hopper import beside
        from longspan.kernels.triton.hopper.intervals import NUMBERS
        from longspan.kernels.triton.hopper.launch import _facts

        roles = beside.roles_of(asked.problem.open_layout)
        assert roles is not None
        self.asked, self.facts = asked, _facts(asked.problem, roles.main, True, torch.zeros(1))
        none = beside.nothing(torch.zeros(1))
        self.keys_beside = beside.keys_beside(asked.problem, roles) or none
        self.rows_beside = beside.rows_beside(asked.problem, roles) or none
        self.grad = torch.randn_like(asked.q)
        leaves = [x.double().requires_grad_() for x in (asked.q, asked.k, asked.v)]
        weight, variance = asked.weight, asked.variance
        if weight is not None:
            assert variance is not None
            leaves.append(variance.double().clone().requires_grad_())
            # The reach stays that of the numbers in float32.
            weight = Bell(leaves[3], normalized=weight.normalized, exempt=weight.exempt)
        pattern = ls.patterns.Mask(asked.exists)
        out = ls.attention(*leaves[:3], pattern, weight=weight, backend="reference")
        found = torch.autograd.grad(out, leaves, self.grad.double())
        self.out = out.detach()
        self.dq, self.dk, self.dv, *rest = found
        self.to_bells = rest[0] if rest else None
        self.limits = self._limits(variance)
        # A unit's rows may be farther apart than they are many.
        self.stride = -(-asked.q.shape[2] // 4) * 4 + 4
        self.stats = torch.full((asked.q[..., 0, 0].numel(), NUMBERS, self.stride), math.nan)
        n = asked.q.shape[2]
        limits = torch.where(self.limits == -math.inf, math.inf, self.limits)
        self.stats[:, 0, :n] = limits.flatten(0, 1).float()
        self.stats[:, 1, :n] = (self.out * self.grad).sum(3).flatten(0, 1).float()
        if variance is not None:
            self.stats[:, 2, :n] = (-0.5 / (asked.problem.scale * variance)).flatten(0, 1)
            self.stats[:, 2, :n][:, asked.global_rows] = 0.0

    def _limits(self, variance: Tensor | None) -> Tensor:
        q, k = self.asked.q.double(), self.asked.k.double()
        n, m = q.shape[2], k.shape[2]
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        # Pair by pair: in a product of matrices a NaN may go where it does not belong.
        s = self.asked.problem.scale * (q[:, :, :, None] * k[:, :, None]).sum(4)
        if variance is not None:
            distance = torch.arange(m) - torch.arange(m - n, m)[:, None]
            bell = distance.square() / (2 * variance.double()[..., None])
            s = s - torch.where(self.asked.exempt, 0.0, bell)
        return torch.where(self.asked.exists, s, -math.inf).logsumexp(3) / math.log(2)


def repair_forward(right: Right, out: Tensor, limits: Tensor) -> None:
    from longspan.kernels.triton.arguments import vectors
    from longspan.kernels.triton.hopper.launch import SCAN
    from longspan.kernels.triton.hopper.repair import repair_outputs

    q, k, v = right.asked.q, right.asked.k, right.asked.v
    _, heads, n, channels = q.shape
    repair_outputs[-(-limits.numel() // SCAN),](
        vectors(q), vectors(k), vectors(v), vectors(out), limits, right.facts.intervals,
        right.keys_beside, right.facts.bells, heads, heads // k.shape[1], n, k.shape[2],
        limits.numel(), right.asked.problem.scale, **constants(right.facts, right.asked),
        BESIDE=right.keys_beside.length > 0, D=channels,
    )  # fmt: skip


def repair_backward(
    right: Right, made: list[Tensor], to_bells: Tensor, rows: Tensor, keys: Tensor
) -> None:
    from longspan.kernels.triton.arguments import vectors
    from longspan.kernels.triton.hopper.intervals import NUMBERS
    from longspan.kernels.triton.hopper.launch import SCAN
    from longspan.kernels.triton.hopper.repair import repair_gradients

    q, k, v = right.asked.q, right.asked.k, right.asked.v
    _, heads, n, channels = q.shape
    key_heads, m = k.shape[1:3]
    programs = -(-rows.numel() // SCAN)
    repair_gradients[programs + -(-keys.numel() // SCAN),](
        *(vectors(x) for x in (q, k, v, right.grad, *made)), right.stats, to_bells, rows, keys,
        right.facts.intervals, right.facts.columns, right.keys_beside, right.rows_beside, heads,
        key_heads, heads // key_heads, n, m, rows.numel(), keys.numel(), programs, right.stride,
        right.asked.problem.scale, **constants(right.facts, right.asked), D=channels,
        NUMBERS=NUMBERS, KEYS_BESIDE=right.keys_beside.length > 0,
        ROWS_BESIDE=right.rows_beside.length > 0,
    )  # fmt: skip


def constants(facts: RowFacts, asked: Asked) -> dict[str, object]:
    return {"KIND": facts.kind, "BELL": asked.weight is not None, "PD": 32, "OVERLAPS": False}


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, equal_nan=True, rtol=1e-4, atol=1e-5)


def spread(shape: torch.Size, every: int) -> Tensor:
    """Some rows, or keys: the first and the last of each unit, and some between."""
    marked = torch.zeros(shape, dtype=torch.bool)
    marked[:, :, ::every] = True
    marked[:, :, -1] = True
    marked[0, 0, 3 : shape[2] // 2] = False
    return marked


def others(marked: Tensor, tokens: Tensor) -> Tensor:
    """Those that are not global: the others are written afterwards, whatever is there."""
    marked[:, :, tokens] = False
    return marked


# Of every kind of interval, with a NaN and an infinity in the keys or in the values of a sample.
CASES = [
    (Window(10, 10), "none", 100, 100, "k"),
    (Window(10, 10), "none", 100, 100, "v"),
    (Window(20, 3), "uncut", 70, 150, "v"),
    (Window(15, 15), "each", 100, 100, "k"),
    (Window(15, 15), "by sample", 70, 140, "v"),
    (Window(15, 2), "each", 100, 100, "v"),
    (Causal(), "by head", 70, 100, "k"),
    (Causal(), "none", 100, 70, "v"),
    (Full(), "same reach", 100, 70, "k"),
    (Window(10, 10) | Global(9), "none", 100, 100, "k"),
    (Window(10, 10) | Global(torch.tensor([[3, 50], [99, 99]])), "none", 100, 100, "v"),
    (Window(10, 10) | Global(keys=torch.tensor([3, 110])), "none", 70, 140, "v"),
    (Window(10, 10) | Global(queries=torch.tensor([3, 50])), "none", 100, 100, "v"),
    (Full(), "exempt", 100, 100, "k"),
    (Full(), "exempt", 100, 100, "v"),
]


def with_nan(asked: Asked, place: str) -> Asked:
    """One key or value of one sample is NaN, and one more infinite."""
    spoilt = {"k": asked.k, "v": asked.v}[place]
    spoilt[1, 0, -40, 5] = math.nan
    spoilt[1, 0, -25] = math.inf
    return asked


def right_of(
    pattern: Pattern, bell: str, n: int, m: int, place: str, padding: str | None = None
) -> Right:
    # Four heads share two of keys, if there is one bell for all heads.
    groups = (4, 2) if bell in ("none", "by sample") else (2, 1)
    real = None if padding is None else padded(padding, m)
    asked = ask(pattern, bells(n, bell), n, m, *groups, real=real)
    return Right(with_nan(asked, place))


def check_outputs(right: Right) -> None:
    marked = others(spread(right.limits.shape, 7), right.asked.global_rows)
    limits = torch.where(marked, math.nan, MARK)
    out = torch.full_like(right.asked.q, MARK)
    repair_forward(right, out, limits)
    assert (limits[~marked] == MARK).all() and (out[~marked] == MARK).all()
    same(out[marked], right.out[marked])
    same(limits[marked], right.limits[marked])
    assert out[1].isnan().any() and not out[1].isnan().all() and out[0].isfinite().all()


def check_gradients(right: Right) -> None:
    marked = others(spread(right.limits.shape, 9), right.asked.global_rows)
    marked_keys = others(spread(right.dk.shape[:3], 9), right.asked.global_keys)
    if right.asked.real is not None:
        # Gradients of padding are 0 whatever is in it, and never marked.
        marked_keys &= right.asked.real[:, None]
    rows, keys = (torch.where(x, math.nan, 0.0) for x in (marked, marked_keys))
    made = [torch.full_like(x, MARK) for x in (right.asked.q, right.asked.k, right.asked.v)]
    to_bells = torch.full(right.limits.shape, MARK)
    repair_backward(right, made, to_bells, rows, keys)
    assert (made[0][~marked] == MARK).all() and (to_bells[~marked] == MARK).all()
    same(made[0][marked], right.dq[marked])
    for found, wanted in zip(made[1:], (right.dk, right.dv), strict=True):
        assert (found[~marked_keys] == MARK).all()
        same(found[marked_keys], wanted[marked_keys])
    if right.to_bells is None:
        assert (to_bells == MARK).all()
    else:
        same(to_bells[marked], right.to_bells[marked])


@pytest.mark.parametrize(("pattern", "bell", "n", "m", "place"), CASES, ids=str)
def test_outputs(pattern: Pattern, bell: str, n: int, m: int, place: str) -> None:
    check_outputs(right_of(pattern, bell, n, m, place))


@pytest.mark.parametrize(("pattern", "bell", "n", "m", "place"), CASES, ids=str)
def test_gradients(pattern: Pattern, bell: str, n: int, m: int, place: str) -> None:
    check_gradients(right_of(pattern, bell, n, m, place))


@pytest.mark.parametrize("padding", ["behind", "before", "between"])
@pytest.mark.parametrize(
    ("pattern", "bell", "n", "m", "place"),
    [case for case in CASES if case[1] not in ("uncut", "same reach")][::2],
    ids=str,
)
def test_padding(pattern: Pattern, bell: str, n: int, m: int, place: str, padding: str) -> None:
    right = right_of(pattern, bell, n, m, place, padding)
    check_outputs(right)
    check_gradients(right)


def test_nothing_marked_is_nothing_done() -> None:
    right = right_of(Window(10, 10), "each", 70, 70, "v")
    limits = right.limits.nan_to_num(0).float()
    out = torch.full_like(right.asked.q, MARK)
    repair_forward(right, out, limits)
    made = [torch.full_like(x, MARK) for x in (right.asked.q, right.asked.k, right.asked.v)]
    rows, keys, to_bells = (
        limits * 0,
        torch.zeros(right.dk.shape[:3]),
        torch.full_like(limits, MARK),
    )
    repair_backward(right, made, to_bells, rows, keys)
    assert all((x == MARK).all() for x in (out, to_bells, *made))


def test_rows_of_bells_that_mean_nothing_are_nan() -> None:
    from longspan.kernels.triton.hopper.launch import _facts

    variance = torch.full((1, 1, 70), 30.0)
    asked = ask(Window(9, 9), Bell(variance, threshold=0.5), 70, 70)
    right = Right(asked)
    bad = variance.clone()
    bad[..., 20:24] = torch.tensor([math.nan, 0.0, -1.0, 1e-45])
    asked = Asked(asked.q, asked.k, asked.v, asked.pattern, Bell(bad, threshold=0.5))
    right.facts = _facts(asked.problem, 0, True, torch.zeros(1))
    limits = torch.full((2, 2, 70), math.nan)
    out = torch.full_like(asked.q, MARK)
    repair_forward(right, out, limits)
    assert out[:, :, 20:23].isnan().all() and limits[:, :, 20:23].isnan().all()
    # Under the narrowest a row has itself alone.
    same(out[:, :, 23], asked.v[:, :, 23].double().expand(2, 2, 24))
    for calm in (slice(20), slice(24, None)):
        same(out[:, :, calm], right.out[:, :, calm])
        same(limits[:, :, calm], right.limits[:, :, calm])
