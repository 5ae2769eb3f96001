"""Reaches in the GPU backend: the integers of every backend, at the cost of no layout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from longspan.functional.attention import prepared
from longspan.functional.dispatch import choose
from longspan.functional.problems import Settings, problem_of, term_of
from longspan.functional.reach import integer_reach, reach_source
from longspan.kernels import cpu
from longspan.kernels import torch as torch_backend
from longspan.kernels import triton as triton_backend
from longspan.kernels.problem import Problem
from longspan.patterns import Causal, Global, Pattern, Strided, Window
from longspan.weights import Alibi, Bell, Bias, DistanceBias, Ramp, Weight, variance_of

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    *([pytest.mark.gpu] if DEVICE.type == "cuda" else []),
]


def found_by_kernel(weight: Weight) -> Tensor | None:
    from longspan.kernels.triton.reach import reaches_of

    q = torch.empty(1, 1, 1, 1, device=DEVICE)
    source = reach_source(weight, term_of(weight, 3, q))
    if source is None:
        return None
    assert source.number == 3
    return reaches_of((source,), DEVICE)[0].data


def agree(weight: Weight) -> None:
    found, wanted = found_by_kernel(weight), integer_reach(weight, DEVICE)
    assert found is not None and wanted is not None and found.dtype == torch.int32
    assert torch.equal(found.reshape(wanted.shape), wanted), weight


HARD = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e-45, 1e-38, 1e-7, 3e38, 1e18, 2.0**60]


@pytest.mark.parametrize("max_reach", [None, 0, 1, 40, 2**30, 2**31, 2**40])
@pytest.mark.parametrize("threshold", [1e-9, 0.1, 0.5, 0.6, 0.999])
def test_bells_have_the_integers_of_every_backend(threshold: float, max_reach: int | None) -> None:
    whole = variance_of(torch.arange(3000).double(), threshold).float()
    hard = torch.tensor(HARD)
    near = torch.cat([whole, whole.nextafter(hard[1]), whole.nextafter(hard[2]), hard])
    agree(Bell(near.to(DEVICE), threshold=threshold, max_reach=max_reach))


@pytest.mark.parametrize("softness", [1e-3, 0.1, 1.0, 2.5, 4.0, 1e9])
def test_ramps_have_the_integers_of_every_backend(softness: float) -> None:
    whole = torch.arange(-20, 3000).double() - softness
    hard = torch.tensor(HARD)
    spans = whole.float()
    near = torch.cat([spans, spans.nextafter(hard[1]), spans.nextafter(hard[2]), hard])
    agree(Ramp(near.to(DEVICE)[None], softness))


@pytest.mark.parametrize(
    "weight",
    [
        Bell(40.0, threshold=0.5),
        Bell(1e30, threshold=0.5),
        Bell(variance_of(17.0, 0.3), threshold=0.3, max_reach=16),
        Bell(40.0, max_reach=0),
        Bell(torch.ones(2, 3, 4, device=DEVICE), max_reach=7),
        Bell(torch.ones(2, 3, 4, device=DEVICE), max_reach=2**40),
        Ramp(3.5, 2.0),
        Ramp(-9.0, 2.0),
    ],
    ids=str,
)
def test_one_reach_for_all_is_kept(weight: Weight) -> None:
    agree(weight)
    assert found_by_kernel(weight) is found_by_kernel(weight)


def test_weights_that_cut_nothing_have_no_reach() -> None:
    assert found_by_kernel(Bell(torch.ones(2, 3, 4, device=DEVICE))) is None
    assert found_by_kernel(Alibi(torch.ones(2, device=DEVICE))) is None


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 1500), (2, 3, 700)])
def test_shapes_and_strides(shape: tuple[int, ...]) -> None:
    variance = torch.rand(shape).to(DEVICE) * 1e4
    agree(Bell(variance, threshold=0.5))
    agree(Bell(variance.transpose(0, 2).contiguous().transpose(0, 2), threshold=0.5))
    agree(Bell(variance.expand(2, *shape[1:]), threshold=0.5))
    agree(Ramp(variance.flatten(), 2.0))
    agree(Bell(variance[0, 0, 0], threshold=0.5))


def problem(
    pattern: Pattern, weight: Weight | list[Weight], n: int = 40, padding: bool = False
) -> Problem:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 16, device=DEVICE) for _ in range(3))
    real = (torch.rand(2, n) < 0.7).to(DEVICE) if padding else None
    call = prepared(q, k, v, pattern, weight=weight, key_padding=real)
    return problem_of(q, k, v, call.meaning, call.settings)


@pytest.mark.parametrize("padding", [False, True])
def test_a_learned_reach_compiles_no_layout(padding: bool) -> None:
    kept = []
    for width in (3.0, 30.0):
        bell = Bell(torch.full((2, 2, 40), width, device=DEVICE), threshold=0.5, exempt=Global(1))
        learned = [
            Bias(torch.zeros(1, 1, 1, 40, device=DEVICE)),
            DistanceBias(torch.zeros(9, device=DEVICE)),
        ]
        asked = problem(Window(9, 9) | Global(1), [bell, *learned], padding=padding)
        _, module = choose(asked, "triton")
        out, limits = module.forward(asked)
        wanted = frozenset({(0, "variance"), (1, "tensor"), (2, "table")})
        module.backward(asked, out, limits, torch.ones_like(out), wanted)
        assert "closed" not in vars(asked.existence)
        assert "variance" not in vars(asked.terms[0])
        walks = [walk.unpadded or walk for walk in asked.open_layout.walks]
        kept.append([(walk, walk.plan["triton"], *_kept(walk.plan["triton"])) for walk in walks])
        kept[-1].append((walks[0].plan["triton keys"],))
    for one, two in zip(*kept, strict=True):
        assert len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))
    # The parts that exempt pairs keep which keys their tiles meet; the others change with a reach.
    assert any(len(one) > 2 for one in kept[0])


def _kept(arguments: object) -> list[Tensor]:
    return [x for pair in arguments.kept.values() for x in pair]  # type: ignore[attr-defined]


def test_who_cannot_take_a_call_compiles_nothing() -> None:
    q = torch.randn(1, 1, 9, 4, dtype=torch.float64)
    call = prepared(q, q, q, Causal(), weight=Bell(torch.ones(9).double(), threshold=0.5))
    asked = problem_of(q, q, q, call.meaning, Settings(1.0))
    assert cpu.unsupported_reasons(asked) and triton_backend.unsupported_reasons(asked)
    assert not {"open", "closed"} & vars(asked.existence).keys()


@pytest.mark.parametrize("form", ["bias", "score", "weight", "ramp"])
def test_values_that_mean_nothing_are_nan_in_their_own_rows(form: str) -> None:
    """Also without the checks, which look at values on the CPU alone."""
    values = torch.full((1, 2, 40), 9.0, device=DEVICE)
    bad = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -3.0], device=DEVICE)
    values[0, 1, 10:15] = bad
    weight = Ramp(values, 2.0) if form == "ramp" else Bell(values, threshold=0.5, form=form)  # type: ignore[arg-type]
    asked = problem(Window(20, 20) | Strided(5), weight)
    wanted = torch_backend.forward(asked)
    found = triton_backend.forward(asked)
    assert found[0].isnan().any()
    torch.testing.assert_close(found[0], wanted[0], equal_nan=True)
    grad = torch.randn_like(found[0])
    to_q = triton_backend.backward(asked, *found, grad, frozenset())[0]
    wanted_to_q = torch_backend.backward(asked, *wanted, grad, frozenset())[0]
    torch.testing.assert_close(to_q, wanted_to_q, equal_nan=True, rtol=1e-4, atol=1e-5)
