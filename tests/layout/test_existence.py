"""A layout without reaches, and the reaches, are the layout with them; and nobody pays for both."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longspan.layout import Cut, Existence, Layout, Walk, compile_layout, existence
from longspan.patterns import Causal, Global, Pattern, Window

from ..patterns.strategies import BATCH, HEADS, chance
from .expand import expand
from .test_compile import EXEMPT, PATTERNS, N, Problem, problems

CPU = torch.device("cpu")

Cuts = list[tuple[Tensor | None, Pattern | None]]


def existence_of(
    pattern: Pattern, cuts: Cuts, n: int, m: int, merge: bool, real: Tensor | None = None
) -> Existence:
    def found() -> tuple[Cut, ...]:
        return tuple(Cut(reach, exempt) for reach, exempt in cuts)

    cutting = any(reach is not None for reach, _ in cuts)
    exempts = tuple(exempt for _, exempt in cuts)
    return Existence(pattern, exempts, found if cutting else None, n, m, CPU, merge, real)


def check(pattern: Pattern, cuts: Cuts, n: int, m: int, merge: bool, real: Tensor | None) -> None:
    """Applies each reach where its weight is active, and only there."""
    both = existence_of(pattern, cuts, n, m, merge, real)
    count, active = expand(both.open, BATCH, HEADS)
    away = (torch.arange(m) - torch.arange(m - n, m)[:, None]).abs()
    for number, (reach, _) in enumerate(cuts):
        if reach is not None:
            cut = (active >> number & 1).bool() & (away > reach[..., None])
            count, active = count.masked_fill(cut, 0), active.masked_fill(cut, 0)
    wanted, wanted_active = expand(both.closed, BATCH, HEADS)
    bits = (1 << len(cuts)) - 1
    assert torch.equal(count, wanted)
    assert torch.equal(active & bits, wanted_active & bits)


@settings(max_examples=100)
@given(problems(2), st.booleans(), st.none() | st.integers(0, 1000))
def test_any_expression(problem: Problem, merge: bool, seed: int | None) -> None:
    expression, cuts = problem
    n, m = expression.dense.shape[2:]
    real = None if seed is None else chance(seed, 0.6, BATCH, m)
    check(expression.pattern, cuts, n, m, merge, real)


@pytest.mark.parametrize("exempt", EXEMPT)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern(pattern: str, exempt: str) -> None:
    source = torch.Generator().manual_seed(0)
    reach = torch.randint(-1, 60, (1, HEADS, N), generator=source, dtype=torch.int32)
    check(PATTERNS[pattern], [(reach, EXEMPT[exempt])], N, N, True, None)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Layout]:
    """Every layout that was asked for."""
    found = []

    def noted(*arguments: object, **options: object) -> Layout:
        found.append(compile_layout(*arguments, **options))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(existence, "compile_layout", noted)
    return found


def test_compiled_when_asked_for_and_once(compiled: list[Layout]) -> None:
    reach = torch.full((1, 1, 9), 2, dtype=torch.int32)
    both = existence_of(Causal(), [(reach, None)], 9, 9, True)
    assert compiled == []
    assert both.open is both.open and len(compiled) == 1
    assert both.closed is both.closed and len(compiled) == 2
    assert both.closed is not both.open


def test_without_a_reach_both_are_one(compiled: list[Layout]) -> None:
    both = existence_of(Window(2, 2), [(None, Global(1))], 9, 9, True)
    assert both.closed is both.open and len(compiled) == 1


def test_open_layouts_are_those_of_every_call() -> None:
    walks: list[Walk | None] = []
    for most in (2, 5):
        reach = torch.full((1, 1, 9), most, dtype=torch.int32)
        padded = existence_of(Causal(), [(reach, None)], 9, 9, True, torch.ones(1, 9).bool())
        walks += [existence_of(Causal(), [(reach, None)], 9, 9, True).open.walks[0]]
        walks += [padded.open.walks[0].unpadded]
    assert all(walk is walks[0] for walk in walks)


def test_padded_layouts_are_those_of_every_layer() -> None:
    reach = torch.full((1, 1, 9), 2, dtype=torch.int32)
    cuts: Cuts = [(reach, Global(1))]
    padding, other = torch.ones(2, 9).bool(), torch.ones(2, 9).bool()
    first = existence_of(Causal(), cuts, 9, 9, True, padding).open
    assert existence_of(Causal(), cuts, 9, 9, True, padding).open is first
    assert existence_of(Causal(), cuts, 9, 9, True, other).open is not first
    assert existence_of(Window(2, 2), cuts, 9, 9, True, padding).open is not first
    padding[0, 4:] = False
    changed = existence_of(Causal(), cuts, 9, 9, True, padding).open
    assert changed is not first
    check(Causal(), cuts, 9, 9, True, padding)
    # Every call that cuts has another one, and nothing of it is kept.
    assert existence_of(Causal(), cuts, 9, 9, True, padding).closed is not changed
