"""The laws of `|` and `&`: of what a combination means, and of the form it is kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from longspan.patterns import (
    AllOf,
    AnyOf,
    Causal,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Strided,
    Window,
)

from .strategies import BATCH, HEADS, Expression, problems


def means_the_same(n: int, m: int, *patterns: Pattern) -> bool:
    first, *others = (p.dense(n, m).expand(BATCH, HEADS, n, m) for p in patterns)
    return all(torch.equal(first, other) for other in others)


def is_flat(pattern: Pattern) -> bool:
    """No union inside a union, no term twice, no `Full` inside, and `PerHead` outermost."""
    if isinstance(pattern, PerHead):
        return all(not isinstance(p, PerHead) and is_flat(p) for p in pattern.patterns)
    if not isinstance(pattern, (AnyOf, AllOf)):
        return True
    terms = pattern.patterns
    return len(terms) > 1 and all(
        not isinstance(term, (type(pattern), Full, PerHead))
        and term not in terms[:place]
        and is_flat(term)
        for place, term in enumerate(terms)
    )


@given(problems())
def test_an_expression_means_what_its_operators_say(
    problem: tuple[int, int, list[Expression]],
) -> None:
    n, m, (a,) = problem
    found = a.pattern.dense(n, m)
    assert torch.equal(found.expand(BATCH, HEADS, n, m), a.dense.expand(BATCH, HEADS, n, m))
    assert a.pattern.pairs(n, m) == int(found.sum())
    assert is_flat(a.pattern)
    assert repr(a.pattern).count("(") == repr(a.pattern).count(")")


@given(problems(2, depth=2))
def test_commutative(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b) = problem
    assert means_the_same(n, m, a.pattern | b.pattern, b.pattern | a.pattern)
    assert means_the_same(n, m, a.pattern & b.pattern, b.pattern & a.pattern)


@given(problems(3, depth=1))
def test_associative(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b, c) = problem
    p, q, r = a.pattern, b.pattern, c.pattern
    for one, other in (((p | q) | r, p | (q | r)), ((p & q) & r, p & (q & r))):
        assert means_the_same(n, m, one, other)
        assert is_flat(one) and is_flat(other)


@given(problems(2, depth=2))
def test_idempotent(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b) = problem
    p, q = a.pattern, b.pattern
    either, both = p | q, p & q
    for pattern in (p, q, either, both):
        assert (pattern | pattern) == pattern == (pattern & pattern)
        assert hash(pattern | pattern) == hash(pattern) == hash(pattern & pattern)
    assert means_the_same(n, m, either | q, either, p | either)
    assert means_the_same(n, m, both & q, both, p & both)


@given(problems(2, depth=2))
def test_absorbing(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b) = problem
    p, q = a.pattern, b.pattern
    assert means_the_same(n, m, p | (p & q), p, p & (p | q))
    assert means_the_same(n, m, (q & p) | p, p, (q | p) & p)
    if not isinstance(p, (AnyOf, AllOf, PerHead)) and not isinstance(q, PerHead):
        assert (p | (p & q)) == p == (p & (p | q))
        assert ((q & p) | p) == p == ((q | p) & p)


@given(problems(3, depth=1))
def test_distributive(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b, c) = problem
    p, q, r = a.pattern, b.pattern, c.pattern
    assert means_the_same(n, m, p & (q | r), (p & q) | (p & r))
    assert means_the_same(n, m, p | (q & r), (p | q) & (p | r))


@given(problems(depth=2))
def test_full_is_everything(problem: tuple[int, int, list[Expression]]) -> None:
    _, _, (a,) = problem
    p = a.pattern
    assert (p & Full()) == p == (Full() & p)
    for joined in (p | Full(), Full() | p):
        heads = joined.patterns if isinstance(joined, PerHead) else (joined,)
        assert all(isinstance(head, Full) for head in heads)


@settings(max_examples=40)
@given(problems(3, depth=1))
def test_one_pattern_a_head_distributes(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a, b, c) = problem
    heads = PerHead([a.pattern.of_head(0), b.pattern.of_head(1)])
    other = c.pattern
    for joined, wanted in (
        (heads | other, [heads.patterns[h] | other.of_head(h) for h in range(HEADS)]),
        (heads & other, [heads.patterns[h] & other.of_head(h) for h in range(HEADS)]),
    ):
        assert isinstance(joined, PerHead)
        assert means_the_same(n, m, joined, PerHead(wanted))
        assert not any(isinstance(p, PerHead) for p in joined.patterns)
    assert means_the_same(n, m, heads | other, other | heads)
    assert means_the_same(n, m, heads & other, other & heads)
    dense = heads.dense(n, m) | other.dense(n, m)
    assert torch.equal((heads | other).dense(n, m).expand_as(dense), dense)


@given(problems(depth=2))
def test_a_head_has_its_own_part(problem: tuple[int, int, list[Expression]]) -> None:
    n, m, (a,) = problem
    whole = a.dense.expand(BATCH, HEADS, n, m)
    for head in range(HEADS):
        own = a.pattern.of_head(head).dense(n, m)
        assert torch.equal(own.expand(BATCH, 1, n, m), whole[:, head : head + 1])


def test_nested_unions_are_one() -> None:
    a, b, c, d = Window(1, 0), Causal(), Strided(3), Global(1)
    assert ((a | b) | (c | d)) == AnyOf([a, b, c, d]) == (a | (b | (c | d)))
    assert ((a & b) & (c & d)) == AllOf([a, b, c, d])
    assert (a & (b | c)) == AllOf([a, AnyOf([b, c])])


def test_what_another_term_makes_idle_is_dropped() -> None:
    a, b, c = Window(1, 0), Causal(), Strided(3)
    assert (a | b | a) == (a | b)
    assert (a & b & a) == (a & b)
    assert ((a & b) | (a & c) | a) == a
    assert ((a | b) & (a | c) & a) == a
    assert ((a & b) | b | c) == (b | c)


def test_full_is_idle_or_decides() -> None:
    a, b = Window(1, 0), Causal()
    assert (a | b | Full()) == Full() == (Full() | (a & b))
    assert (a & Full() & b) == (a & b)
    assert (Full() & Full()) == Full() == (Full() | Full())


def test_different_tensors_are_different_patterns() -> None:
    tokens = torch.tensor([1, 2])
    assert Global(tokens) == Global(tokens)
    assert Global(tokens) != Global(tokens.clone())
    assert (Global(tokens) | Global(tokens)) == Global(tokens)
    assert isinstance(Global(tokens) | Global(tokens.clone()), AnyOf)


def test_numbers_of_another_kind_are_another_pattern() -> None:
    assert Window(None, 0) != Window(0, 0) != Window(0, 0, 2)
    assert Global(1) != Global(keys=1, queries=1)
    assert (Causal() | Strided(2)) != (Causal() & Strided(2))
    assert PerHead([Causal()]) != Causal()


def test_a_combination_reads_as_it_is_written() -> None:
    pattern = Causal() & (Window(3, 0) | Global(1))
    assert repr(pattern) == "Causal() & (Window(3, 0) | Global(1))"
    assert eval(repr(pattern)) == pattern


def test_one_inside_another_raises() -> None:
    heads = PerHead([Causal(), Window(1, 1)])
    with pytest.raises(ValueError, match="PerHead"):
        PerHead([heads, Causal()])
    with pytest.raises(ValueError, match="PerHead"):
        PerHead([Causal(), heads | Strided(2)])


def test_as_many_heads_on_both_sides() -> None:
    with pytest.raises(ValueError, match=r"PerHead.* 2 and 3"):
        PerHead([Causal()] * 2) | PerHead([Causal()] * 3)
    with pytest.raises(ValueError, match=r"PerHead.* 3 for 2 heads"):
        PerHead([Causal()] * 3).check(1, 2, 4, 4)


@pytest.mark.parametrize("other", [None, 3, True, torch.ones(1, 1, 3, 3, dtype=torch.bool), "a"])
def test_only_patterns_combine(other: object) -> None:
    for join in (
        lambda: Causal() | other,
        lambda: other | Causal(),
        lambda: Causal() & other,
        lambda: other & Causal(),
    ):
        with pytest.raises(TypeError):
            join()


class Faulty(Pattern):
    """A pattern that refuses every size."""

    def check(self, batch: int, heads: int, n: int, m: int) -> None:
        raise ValueError("Faulty: refused")

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return (i == j)[None, None]


@pytest.mark.parametrize(
    "pattern",
    [
        Faulty() | Causal(),
        Causal() & Faulty(),
        PerHead([Causal(), Faulty()]),
        PerHead([Causal(), Causal()]) | Faulty(),
        Causal() & (Strided(2) | Faulty()),
    ],
)
def test_a_combination_checks_its_parts(pattern: Pattern) -> None:
    with pytest.raises(ValueError, match="Faulty"):
        pattern.check(1, 2, 4, 4)


class Listed(Pattern):
    """Distances of somebody's own."""

    fields = ("distances",)

    def __init__(self, distances: Any) -> None:
        self.distances = distances

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return torch.isin(i - j, torch.as_tensor(self.distances))[None, None]


def test_arrays_cannot_be_compared() -> None:
    """They have no one truth; tensors and tuples have."""
    one, other = (Listed(np.array([0, 3])) for _ in range(2))
    assert one == one
    for join in (lambda: one == other, lambda: one | other, lambda: {one: 1}.get(other)):
        with pytest.raises(TypeError, match=r"ndarray .* keep it as a tensor or a tuple"):
            join()
    assert Listed((0, 3)) == Listed((0, 3))


def mask(heads: int, n: int = 4) -> Mask:
    chance = torch.rand(1, heads, n, n, generator=torch.Generator().manual_seed(heads))
    return Mask(chance < 0.5)


def test_a_mask_of_many_heads_does_not_fit_one_head() -> None:
    for pattern in (mask(2), mask(2) | Causal(), AnyOf([PerHead([Causal()] * 2), Strided(2)])):
        with pytest.raises(ValueError, match=r"PerHead: .* one head.* 2 heads .*head 1"):
            PerHead([Causal(), pattern])


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("patterns", [1, 3])
def test_heads_that_only_one_side_has_are_not_dropped(patterns: int, heads: int) -> None:
    """Neither those of a mask that has more than there are patterns, nor the other way round."""
    each = PerHead([Window(1, number) for number in range(patterns)])
    for other in (mask(heads), mask(heads) | Causal(), Strided(2) & mask(heads)):
        for join in (
            lambda other=other: each & other,
            lambda other=other: other & each,
            lambda other=other: each | other,
            lambda other=other: other | each,
        ):
            counts = rf"({patterns} and {heads}|{heads} and {patterns})$"
            with pytest.raises(ValueError, match=counts):
                join()


def test_masks_of_other_heads_do_not_combine() -> None:
    for join in (
        lambda: mask(2) | mask(3),
        lambda: mask(2) & (Causal() | mask(3)),
        lambda: AnyOf([mask(2), Causal(), mask(3)]),
        lambda: AllOf([mask(2), mask(3)]),
    ):
        with pytest.raises(ValueError, match=r"as many heads.* 2 and 3"):
            join()
    assert (mask(3) | mask(1)).dense(4).shape == (1, 3, 4, 4)
    assert (PerHead([Causal()] * 3) & mask(1)).dense(4).shape == (1, 3, 4, 4)


def test_how_many_heads_are_told_apart() -> None:
    each = PerHead([Causal(), Strided(2)])
    for pattern in (each, mask(2), mask(2) | Causal(), Strided(3) & (mask(2) | Window(1, 1))):
        assert pattern.heads_apart() == pattern.dense(4).shape[1] == 2
    for pattern in (Causal(), mask(1), Causal() & (Strided(2) | Global(1))):
        assert pattern.heads_apart() == pattern.dense(4).shape[1] == 1


def test_and_and_or_say_what_is_meant() -> None:
    """Python would take one of the two."""
    for wrong in (lambda: Window(3, 3) and Causal(), lambda: Window(3, 3) or Causal()):
        with pytest.raises(TypeError, match="join two by & or"):
            wrong()
