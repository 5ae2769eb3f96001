"""The contract that every pattern keeps: its dense form is its definition, the rest follows."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from longspan import patterns
from longspan.layout import Cut, compile_layout, dense, pairs
from longspan.patterns import Causal, Global, Pattern, PerHead, SameDocument, Strided, Window

from .cases import (
    BATCH,
    CASES,
    HEADS,
    SIZES,
    Case,
    Make,
    causal,
    definition,
    expected,
    full,
    per_head,
    window,
)

CPU = torch.device("cpu")

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_dense_is_the_definition(name: str) -> None:
    for n, m in SIZES:
        case = CASES[name](n, m)
        found = case.pattern.dense(n, m)
        assert found.dtype == torch.bool
        assert found.shape == (case.batch, case.heads, n, m)
        assert torch.equal(found, expected(name, n, m)), (n, m)


@every_case
def test_pairs_are_those_of_dense(name: str) -> None:
    for n, m in SIZES:
        found = CASES[name](n, m).pattern.pairs(n, m)
        assert isinstance(found, int)
        assert found == int(expected(name, n, m).sum()), (n, m)


@every_case
@pytest.mark.parametrize("merge", [True, False])
def test_the_layout_has_every_pair_once(name: str, merge: bool) -> None:
    for n, m in SIZES:
        case = CASES[name](n, m)
        case.pattern.check(BATCH, HEADS, n, m)
        layout = compile_layout(case.pattern, (), n, m, CPU, merge=merge)
        wanted = expected(name, n, m)
        assert torch.equal(dense(layout, case.batch, case.heads), wanted.long()), (n, m)
        assert pairs(layout, case.batch, case.heads) == int(wanted.sum()), (n, m)
        assert merge or not layout.merged


@every_case
def test_samples_and_heads_that_it_does_not_tell_apart_share_it(name: str) -> None:
    case = CASES[name](17, 6)
    layout = compile_layout(case.pattern, (), 17, 6, CPU, merge=True)
    wanted = expected(name, 17, 6).expand(BATCH, HEADS, 17, 6)
    assert torch.equal(dense(layout, BATCH, HEADS), wanted.long())
    assert pairs(layout, BATCH, HEADS) == int(wanted.sum())


@every_case
def test_m_is_n_unless_it_is_given(name: str) -> None:
    pattern = CASES[name](7, 7).pattern
    assert torch.equal(pattern.dense(7), pattern.dense(7, 7))
    assert pattern.pairs(7) == pattern.pairs(7, 7)


@every_case
def test_contains_takes_positions_of_any_shape(name: str) -> None:
    case, (n, m) = CASES[name](17, 6), (17, 6)
    i = torch.tensor([[[-11], [-3]], [[0], [5]]])
    j = torch.tensor([0, 5, 2])
    found = case.pattern.contains(i, j, n, m)
    assert found.shape == (case.batch, case.heads, 2, 2, 3)
    assert torch.equal(found, expected(name, n, m)[:, :, i - (m - n), j])


@every_case
def test_hops_are_those_of_dense(name: str) -> None:
    found = CASES[name](7, 7).pattern.hops(7)
    assert 0 <= found.layers < 7
    assert 0 <= found.connected <= 1
    assert found.mean <= found.layers


@every_case
def test_draw_has_a_mark_for_every_pair(name: str) -> None:
    case = CASES[name](6, 17)
    text = case.pattern.draw(6, 17)
    assert text.count("■") == int(expected(name, 6, 17).sum())
    assert text.count("■") + text.count("·") == case.batch * case.heads * 6 * 17


@every_case
def test_draw_shades_what_is_too_wide(name: str) -> None:
    pattern = CASES[name](65, 130).pattern
    text = pattern.draw(65, 130)
    assert text
    assert not set("■·") & set(text)
    assert all(len(line) <= 64 for line in text.splitlines())


@every_case
def test_repr_is_one_short_line(name: str) -> None:
    case = CASES[name](65, 130)
    text = repr(case.pattern)
    assert "\n" not in text and "tensor(" not in text
    for pattern in _every_pattern(case.pattern):
        if not isinstance(pattern, (patterns.AnyOf, patterns.AllOf)):
            assert type(pattern).__name__ in text


@every_case
def test_equal_patterns_have_equal_hashes(name: str) -> None:
    pattern = CASES[name](7, 7).pattern
    twin = copy.copy(pattern)
    assert twin is not pattern
    assert twin == pattern and hash(twin) == hash(pattern)
    again = CASES[name](7, 7).pattern
    assert hash(again) == hash(pattern)
    if next(pattern.tensors(), None) is None:
        assert again == pattern
    else:
        assert again != pattern, "tensors are the same only when they are one object"
    assert pattern != Unlike() and pattern != repr(pattern)


def test_different_cases_differ() -> None:
    static = {n: c for n, c in _cases().items() if next(c.pattern.tensors(), None) is None}
    presets = set(_preset_names())
    for name, case in static.items():
        for other, another in static.items():
            if name != other and not {name.split(",")[0], other.split(",")[0]} & presets:
                assert case.pattern != another.pattern, (name, other)


@every_case
def test_a_copy_means_the_same(name: str) -> None:
    pattern = CASES[name](7, 7).pattern
    for twin in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern)):
        assert type(twin) is type(pattern)
        assert repr(twin) == repr(pattern)
        assert torch.equal(twin.dense(7), pattern.dense(7))


@every_case
def test_no_query_and_no_key_are_no_pairs(name: str) -> None:
    pattern = CASES[name](7, 7).pattern
    if next(pattern.tensors(), None) is not None:
        return  # these tensors are for seven positions
    for n, m in ((0, 5), (5, 0), (0, 0)):
        assert pattern.dense(n, m).shape[2:] == (n, m)
        assert pattern.pairs(n, m) == 0
        layout = compile_layout(pattern, (), n, m, CPU, merge=True)
        assert dense(layout, BATCH, HEADS).shape == (BATCH, HEADS, n, m)


def test_every_public_pattern_is_a_case() -> None:
    public = {
        value
        for name in patterns.__all__
        if inspect.isclass(value := getattr(patterns, name)) and issubclass(value, Pattern)
    }
    tried = {type(p) for case in _cases().values() for p in _every_pattern(case.pattern)}
    assert public - {Pattern} == tried & public


def test_every_preset_is_a_case() -> None:
    assert set(_preset_names()) <= {name.split(",")[0] for name in CASES}


class Unlike(Pattern):
    """A pattern that no case is."""


class Diagonals(Pattern):
    """A new pattern, with nothing but its definition: |i − j| is a square number."""

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        distance = (i - j).abs()
        root = distance.double().sqrt().round().long()
        return (root * root == distance)[None, None]


class Coloured(Pattern):
    """A new pattern with a tensor of each sample and a number: colours are near each other."""

    fields: ClassVar = ("colours", "spread")

    def __init__(self, colours: Tensor, spread: int) -> None:
        self.colours, self.spread = colours, spread

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        near = (self.colours[:, i.clamp(min=0)] - self.colours[:, j]).abs() <= self.spread
        return (near & (i >= 0))[:, None]


class Tilted(Pattern):
    """A new pattern that tells heads apart: head h looks back by h steps."""

    fields: ClassVar = ("heads",)

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def heads_apart(self) -> int:
        return self.heads

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        return torch.stack([i - j == head for head in range(self.heads)])[None]


class Unsaid(Tilted):
    """One that does not say so."""

    def heads_apart(self) -> int:
        return 1


def test_a_new_pattern_may_tell_heads_apart() -> None:
    """And meets patterns that each head has of its own, in every place."""
    each = per_head([window(2, 2), full(), causal()])
    for n, m in ((7, 7), (65, 130)):
        tilted = Case(Tilted(HEADS), lambda b, h, i, j: i - j == h, heads=HEADS)
        for case in (tilted, tilted & causal(), tilted | each, each & (window(1, 1) | tilted)):
            wanted = definition(case, n, m)
            assert torch.equal(case.pattern.dense(n, m), wanted)
            layout = compile_layout(case.pattern, (), n, m, CPU, merge=True)
            assert torch.equal(dense(layout, 1, HEADS), wanted.long())
        for exempt in (each.pattern, PerHead([Strided(2), Causal(), Global(1)])):
            cuts = (Cut(torch.zeros(1, 1, n, dtype=torch.int32), exempt),)
            layout = compile_layout(tilted.pattern, cuts, n, m, CPU, merge=True)
            near = Window(0, 0).dense(n, m) | exempt.dense(n, m)
            assert torch.equal(dense(layout, 1, HEADS) > 0, tilted.pattern.dense(n, m) & near)


def test_a_new_pattern_that_does_not_say_that_it_tells_heads_apart() -> None:
    pattern = PerHead([Causal(), Strided(2)]) | Unsaid(2)
    with pytest.raises(ValueError, match=r"Unsaid\(2\).* 2 heads.*heads_apart"):
        pattern.dense(7)
    with pytest.raises(ValueError, match=r"Unsaid\(2\).* 2 heads.*heads_apart"):
        compile_layout(pattern, (), 7, 7, CPU, merge=True)


def _squares(n: int, m: int) -> Case:
    return Case(Diagonals(), lambda b, h, i, j: abs(i - j) in {x * x for x in range(m + n)})


def _coloured(n: int, m: int) -> Case:
    colours = torch.randint(9, (BATCH, m), generator=torch.Generator().manual_seed(1))
    listed = colours.tolist()
    return Case(
        Coloured(colours, 2),
        lambda b, h, i, j: i >= 0 and abs(listed[b][i] - listed[b][j]) <= 2,
        batch=BATCH,
    )


@pytest.mark.parametrize("make", [_squares, _coloured])
@pytest.mark.parametrize("joined", ["alone", "or", "and", "per head"])
def test_a_new_pattern_needs_its_definition_only(make: Make, joined: str) -> None:
    for n, m in SIZES:
        case = make(n, m)
        if joined == "or":
            case = case | window(3, 1)
        elif joined == "and":
            case = case & window(3, 1)
        elif joined == "per head":
            case = per_head([case, full(), causal()])
        wanted = definition(case, n, m)
        assert torch.equal(case.pattern.dense(n, m), wanted), (n, m)
        assert case.pattern.pairs(n, m) == int(wanted.sum()), (n, m)
        for merge in (True, False):
            layout = compile_layout(case.pattern, (), n, m, CPU, merge=merge)
            found = dense(layout, case.batch, case.heads)
            assert torch.equal(found, wanted.long()), (n, m, merge)


class Paired(Pattern):
    """A new pattern with tensors side by side: a query's colour is that of the key."""

    fields: ClassVar = ("colours",)

    def __init__(self, colours: Sequence[Tensor]) -> None:
        self.colours = colours

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        ours, theirs = self.colours
        return (ours[i] == theirs[j])[None, None]


@pytest.mark.parametrize("kind", [tuple, list])
def test_tensors_side_by_side_are_tensors_too(kind: type) -> None:
    """A change in one of them is seen, and a pattern around the same ones is the same."""
    ours, theirs = torch.arange(9) % 2, torch.arange(9) % 3
    pattern = Paired(kind([ours, theirs]))
    assert list(pattern.tensors()) == [ours, theirs] and pattern.device == CPU
    assert pattern == Paired(kind([ours, theirs])) != Paired(kind([ours, theirs.clone()]))
    assert hash(pattern) == hash(Paired(kind([ours, theirs])))
    tensor = "an int64 tensor of shape (9,)"
    wanted = f"({tensor}, {tensor})" if kind is tuple else f"[{tensor}, {tensor}]"
    assert repr(pattern) == f"Paired({wanted})"
    for _ in range(2):
        layout = compile_layout(pattern, (), 9, 9, CPU, merge=True)
        assert torch.equal(dense(layout, 1, 1), pattern.dense(9).long())
        theirs.copy_(theirs.roll(1))


def test_a_pattern_without_a_definition_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="Unlike must define contains"):
        Unlike().dense(3)


def test_a_new_pattern_is_a_value_too() -> None:
    colours = torch.tensor([[1, 2]])
    assert Diagonals() == Diagonals() and repr(Diagonals()) == "Diagonals()"
    assert Coloured(colours, 2) == Coloured(colours, 2) != Coloured(colours, 3)
    assert repr(Coloured(colours, 2)) == "Coloured(an int64 tensor of shape (1, 2), 2)"
    assert Diagonals().draw(3) == "■ ■ ·\n■ ■ ■\n· ■ ■"


def _cases() -> dict[str, Case]:
    return {name: make(7, 7) for name, make in CASES.items()}


def _every_pattern(pattern: Pattern) -> list[Pattern]:
    return [pattern, *(p for child in pattern.children() for p in _every_pattern(child))]


def _preset_names() -> list[str]:
    return [n for n in patterns.__all__ if inspect.isfunction(getattr(patterns, n))]


def test_patterns_of_no_samples() -> None:
    """Beside what is the same for all of them."""
    none = Global(torch.zeros(0, 5, dtype=torch.bool))
    assert PerHead([none, Window(1, 1)]).dense(5).shape == (0, 2, 5, 5)
    ids = SameDocument(torch.zeros(0, 5, dtype=torch.long), query_ids=torch.zeros(1, 4).long())
    assert ids.dense(4, 5).shape == (0, 1, 4, 5)
