"""What computes again after the kernels for Hopper, whose NaN are those of rows and of keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from longspan.functional.attention import prepared
from longspan.functional.problems import problem_of
from longspan.kernels import triton as triton_backend
from longspan.kernels.problem import BellTerm, Problem
from longspan.patterns import Causal, Pattern, Window
from longspan.weights import Bell

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter computes bfloat16 wrongly; on a GPU it has the tiles that Hopper's kernels have.
DTYPE = torch.float32 if DEVICE.type == "cpu" else torch.bfloat16

pytestmark = [
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    *([pytest.mark.gpu] if DEVICE.type == "cuda" else []),
]

# What nobody computes: it stays where nothing is repaired.
MARK = 1234.0


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if DEVICE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    yield


@dataclass
class Asked:
    """A problem with a NaN in the values of key 70, which some rows see, and what the kernels of
    this package make of it.
    """

    problem: Problem
    grad: Tensor
    out: Tensor
    limits: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    to_bells: Tensor


@cache
def asked(pattern: Pattern, bell: str, n: int) -> Asked:
    from longspan.kernels.triton import launch

    torch.manual_seed(0)
    q = torch.randn(2, 2, n, 16, device=DEVICE).to(DTYPE)
    k, v = (torch.randn(2, 1, 100, 16, device=DEVICE).to(DTYPE) for _ in range(2))
    v[1, 0, 70] = torch.nan
    variance = torch.rand(2, 2, n, device=DEVICE) * 90 + 10
    weight = {
        "none": None,
        "learned": Bell(variance, threshold=0.5),
        "shared": Bell(variance[:1, :, :1], threshold=0.1),
        "normalized": Bell(variance, normalized=True),
        "one": Bell(40.0, threshold=0.5),
    }[bell]
    call = prepared(q, k, v, pattern, weight=weight)
    problem = problem_of(q, k, v, call.meaning, call.settings)
    plain = problem
    if problem.terms:
        (term,) = problem.terms
        assert isinstance(term, BellTerm)
        # Limits without normalisation, as the kernels for Hopper have them.
        plain = replace(problem, terms=(replace(term, normalized=False),))
    out, limits = launch.forward(plain)
    grad = torch.randn_like(out)
    wanted = frozenset((term.number, "variance") for term in problem.terms)
    dq, dk, dv, found = launch.backward(plain, out, limits, grad, wanted)
    assert out.isnan().any() and not out.isnan().all() and dk.isnan().any()
    to_bells = next(iter(found.values()), limits)
    return Asked(problem, grad, out, limits.float().contiguous(), dq, dk, dv, to_bells)


CASES = [
    (Window(10, 10), "none", 100),
    (Window(15, 15), "learned", 100),
    (Window(15, 15), "shared", 100),
    (Causal() & Window(15, 15), "normalized", 100),
    (Window(9, 0), "one", 80),
]


def same(found: Tensor, wanted: Tensor) -> None:
    rtol, atol = (2e-2, 3e-2) if DEVICE.type == "cuda" else (1e-4, 1e-5)
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("pattern", "bell", "n"), CASES, ids=str)
def test_outputs_of_broken_tiles(pattern: Pattern, bell: str, n: int) -> None:
    from longspan.kernels.triton.repair import repair_forward

    right = asked(pattern, bell, n)
    limits, out = right.limits.clone(), torch.full_like(right.out, MARK)
    # The last tile of a sample's heads, which is a short one, and the first of one more.
    limits[0, :, -1] = torch.nan
    limits[1, 1, 63] = torch.nan
    repair_forward(right.problem, out, limits)
    same(limits, right.limits)
    same(out[0, :, 64:], right.out[0, :, 64:])
    same(out[1, 1, :64], right.out[1, 1, :64])
    assert all((x == MARK).all() for x in (out[0, :, :64], out[1, 0], out[1, 1, 64:]))


@pytest.mark.parametrize(("pattern", "bell", "n"), [CASES[0], CASES[1], CASES[3]], ids=str)
def test_gradients_of_broken_tiles(pattern: Pattern, bell: str, n: int) -> None:
    from longspan.kernels.triton.repair import repair_backward

    right = asked(pattern, bell, n)
    stride = n + 6
    means = torch.full((4, stride), MARK, device=DEVICE)
    rows = torch.zeros(2, 2, n, device=DEVICE)
    keys = torch.zeros(2, 1, 100, device=DEVICE)
    made = [torch.full_like(x, MARK) for x in (right.dq, right.dk, right.dv)]
    to_bells = torch.full((2, 2, n), MARK, device=DEVICE)

    def repaired() -> None:
        problem, dq, dk, dv = right.problem, *made
        repair_backward(
            problem, right.out, right.limits, right.grad, dq, dk, dv, means, to_bells, rows, keys
        )

    repaired()
    assert all((x == MARK).all() for x in (*made, means, to_bells))
    rows[1, :, ::64] = torch.nan
    repaired()
    same(made[0][1], right.dq[1])
    if bell != "none":
        same(to_bells[1], right.to_bells[1])
    assert (means[2:, n:] == MARK).all() and not (means[2:, :n] == MARK).any()
    others = made[0][0], to_bells[0], means[:2], made[1], made[2]
    assert all((x == MARK).all() for x in others)
    rows.zero_()
    made[0].fill_(MARK)
    keys[1, 0, 99 if bell == "none" else 0] = torch.nan
    own, rest = (64, 0) if bell == "none" else (0, 64)
    repaired()
    assert (made[0] == MARK).all()
    for found, wanted in zip(made[1:], (right.dk, right.dv), strict=True):
        same(found[1, 0, own : own + 64], wanted[1, 0, own : own + 64])
        assert (found[1, 0, rest : rest + 64] == MARK).all() and (found[0] == MARK).all()


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.999])
def test_reaches_where_they_are_read(threshold: float) -> None:
    """The integers that `reaches_of` computes, also beside whole numbers and where a variance means
    nothing.
    """
    from longspan.kernels.triton import launch
    from longspan.kernels.triton.repair import repair_forward
    from longspan.weights import variance_of

    near = variance_of(torch.arange(25).double(), threshold).float()
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    hard = torch.tensor([math.nan, math.inf, 0.0, -1.0, 1e-45])
    variance = torch.cat([near, near.nextafter(up), near.nextafter(down), hard])[None, None]
    n = variance.shape[2]
    q, k, v = (torch.randn(1, 1, n, 16, device=DEVICE).to(DTYPE) for _ in range(3))
    call = prepared(
        q, k, v, Window(20, 20), weight=Bell(variance.to(DEVICE), threshold=threshold, max_reach=15)
    )
    problem = problem_of(q, k, v, call.meaning, call.settings)
    wanted, wanted_limits = launch.forward(problem)
    out = torch.full_like(wanted, MARK)
    limits = torch.full((1, 1, n), torch.nan, device=DEVICE)
    repair_forward(problem, out, limits)
    same(out, wanted)
    same(limits, wanted_limits.float())
