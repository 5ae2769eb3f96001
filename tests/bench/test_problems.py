from __future__ import annotations

import pytest
import torch

from longspan.bench import PROBLEMS
from longspan.bench.contenders import Contender
from longspan.bench.floor import best_rate, flops_of, matmuls, times_floor
from longspan.bench.problem import Results
from longspan.bench.problems.learned import window_with_pairs, window_with_tiles
from longspan.bench.problems.memory import least_bytes
from longspan.bench.records import Outcome, Sample
from longspan.functional import explain
from longspan.measure import Size
from longspan.patterns import Window

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")

# The lines of the table that the CPU backend has to reach.
ASKED = {
    "window": 3,
    "threads": 1,
    "learned": 3,
    "cost-per-pair": 1,
    "memory": 1,
    "global": 1,
    "head-dims": 3,
    "entmax-attention": 2,
    "entmax-functions": 2,
    "bigbird": 1,
    "dilated": 1,
    "compile": 6,
    "lengths": 0,
}


def outcome(problem: str, contender: Contender, place: int) -> Outcome:
    """What a contender might have done: each a little slower than the one before."""
    seconds = 1.0 + place
    sample = Sample(seconds, seconds, seconds, 1)
    return Outcome(
        problem=problem,
        name=contender.name,
        length=contender.size.length,
        forward=sample,
        both=sample if contender.both else None,
        pairs=1000,
        tiles=10,
        flops=7 if contender.name.startswith("matmul") else 0,
        peak=1 << 20,
    )


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_well_formed(name: str, quick: bool) -> None:
    problem = PROBLEMS[name](quick)
    assert problem.name == name
    assert problem.title and problem.ours
    names = [one.name for one in problem.contenders]
    assert len(names) == len(set(names)), "names are how contenders are found again"
    assert not any("|" in one for one in names)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_target_is_asked_for(name: str) -> None:
    problem = PROBLEMS[name](False)
    outcomes = [outcome(name, one, place) for place, one in enumerate(problem.contenders)]
    figures = problem.judge(Results(name, outcomes))
    assert all(figure.problem == name for figure in figures)
    asked = [figure for figure in figures if figure.targets != (None, None)]
    assert len(asked) == ASKED[name]
    assert all(figure.met is not None for figure in asked)


@pytest.mark.parametrize("name", PROBLEMS)
def test_figures_say_what_is_missing(name: str) -> None:
    problem = PROBLEMS[name](False)
    outcomes = []
    for place, one in enumerate(problem.contenders):
        gone = one in problem.peers and name != "learned" and not one.name.startswith("matmul")
        if gone and one.name != "torch.softmax" and not one.name.startswith("SDPA"):
            found = Outcome(problem=name, name=one.name, missing="not installed")
        else:
            found = outcome(name, one, place)
        outcomes.append(found)
    figures = problem.judge(Results(name, outcomes))
    for figure in figures:
        assert figure.values != (None, None) or figure.note == "not installed"


def test_the_sizes_are_those_of_the_targets() -> None:
    (ours,) = PROBLEMS["window"](False).ours
    assert ours.size == Size(batch=1, heads=12, length=4096, head_dim=64)
    (ours,) = PROBLEMS["memory"](False).ours
    assert ours.size.length == 16384
    # 201 MB and a little.
    assert least_bytes(ours.size) == 4 * 12 * 16384 * (4 * 64 + 1)


def test_flops_are_counted_by_pairs() -> None:
    assert flops_of(10, 64) == (2560, 8960)


def test_the_floor_is_that_of_the_best_product() -> None:
    def product(name: str, seconds: float) -> Outcome:
        sample = Sample(seconds, seconds, seconds, 1)
        return Outcome(problem="p", name=name, forward=sample, flops=100)

    rate = best_rate([product("a", 2.0), product("b", 1.0)])
    assert rate == 100
    sample = Sample(3.0, 3.0, 3.0, 1)
    ours = Outcome(problem="p", name="o", forward=sample, both=sample, pairs=5)
    # 4 · 2 · 5 flops would take 0.4 seconds, 14 · 2 · 5 would take 1.4.
    assert times_floor(ours, 2, rate) == pytest.approx((7.5, 3 / 1.4))
    assert times_floor(ours, 2, rate, pairs=10)[0] == pytest.approx(3.75)


def test_products_count_their_flops() -> None:
    batched, square = matmuls(quick=True)
    assert batched.make(batched.size).flops == 2 * 12 * 512 * 64 * 512
    assert square.make(square.size).flops == 2 * 256**3


def test_windows_of_as_many_tiles_or_pairs() -> None:
    size = Size(heads=2, length=512, head_dim=4)
    q, k, v = size.inputs()
    for window in (Window(64, 64), Window(64, 128), Window(192, 192)):
        assert window_with_tiles(explain(q, k, v, window).tiles, size) == window
    assert window_with_tiles(2 * 64, size) == Window(448, 448)
    for reach in (0, 17, 84):
        pairs = explain(q, k, v, Window(reach, reach)).pairs
        assert window_with_pairs(pairs, size) == Window(reach, reach)


@pytest.mark.parametrize("name", ["learned", "compile", "entmax-attention", "entmax-functions"])
def test_our_own_contenders_run_and_have_gradients(name: str) -> None:
    problem = PROBLEMS[name](True)
    for one in problem.ours:
        work = one.make(Size(heads=2, length=320, head_dim=4))
        work.without_gradients()
        if one.both:
            work.with_gradients()()
            assert all(leaf.grad is None for leaf in work.leaves)
            assert all(isinstance(leaf, torch.Tensor) for leaf in work.leaves)
