"""A layout has the pairs of `pattern & (within reach | exempt)` once, each with its weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longspan.layout import Cut, Layout, compile_layout, dense, pairs
from longspan.patterns import (
    Causal,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Strided,
    Window,
    bigbird,
)

from ..patterns.cases import packed_ids, question_mask, shuffled_ids
from ..patterns.strategies import BATCH, HEADS, Expression, expressions, sizes
from .expand import expand

CPU = torch.device("cpu")


def cut_pairs(whole: Tensor, cuts: list[tuple[Tensor | None, Tensor | None]]) -> Tensor:
    """The contract's sentence: pattern & (within reach | exempt), for every weight in turn."""
    n, m = whole.shape[2:]
    i, j = torch.arange(m - n, m)[:, None], torch.arange(m)
    for reach, exempt in cuts:
        if reach is None:
            continue
        kept = (i - j).abs() <= reach[..., None]
        whole = whole & (kept if exempt is None else kept | exempt)
    return whole.expand(BATCH, HEADS, n, m)


def acting(shape: tuple[int, int], cuts: list[tuple[Tensor | None, Tensor | None]]) -> Tensor:
    """Bit w where the w-th weight does not exempt the pair."""
    found = torch.zeros(BATCH, HEADS, *shape, dtype=torch.int64)
    for number, (_, exempt) in enumerate(cuts):
        acts = torch.tensor(True) if exempt is None else ~exempt
        found = found | acts.long() << number
    return found


def check(
    pattern: Pattern, whole: Tensor, cuts: list[tuple[Tensor | None, Pattern | None]], merge: bool
) -> None:
    """Holds a layout against what it must have, by walking it and by taking it at its word."""
    n, m = whole.shape[2:]
    given_cuts = tuple(Cut(reach, exempt) for reach, exempt in cuts)
    layout = compile_layout(pattern, given_cuts, n, m, CPU, merge=merge)
    masks = [(r, None if e is None else e.dense(n, m)) for r, e in cuts]
    wanted = cut_pairs(whole, masks)
    assert torch.equal(dense(layout, BATCH, HEADS), wanted.long())
    assert pairs(layout, BATCH, HEADS) == int(wanted.sum())
    count, active = expand(layout, BATCH, HEADS)
    assert torch.equal(count, wanted.long())
    bits = (1 << len(cuts)) - 1
    assert torch.equal(active[wanted] & bits, acting((n, m), masks)[wanted])
    assert merge or not layout.merged
    if not layout.merged:
        rows = torch.zeros(BATCH, HEADS, n, dtype=torch.int64)
        for walk in layout.walks:
            rows += expand(Layout(n, m, (walk,)), BATCH, HEADS)[0].any(-1)
        assert (rows <= 1).all(), "a row has its pairs in one walk unless results are merged"


@st.composite
def reaches(draw: st.DrawFn, n: int) -> Tensor:
    """How far each query looks; −1 is not even at itself."""
    shape = (draw(st.sampled_from([1, BATCH])), draw(st.sampled_from([1, HEADS])), n)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    most = draw(st.sampled_from([1, 5, 40, 200]))
    found = torch.randint(-1, most, shape, generator=generator, dtype=torch.int32)
    return found.masked_fill(found == 199, 2**30)


Problem = tuple[Expression, list[tuple[Tensor | None, Pattern | None]]]


@st.composite
def problems(draw: st.DrawFn, weights: int) -> Problem:
    n, m = draw(sizes)
    cuts = []
    for _ in range(draw(st.integers(1, weights)) if weights else 0):
        exempt = draw(st.none() | expressions(n, m, depth=1))
        reach = draw(st.none() | reaches(n) | reaches(n))
        cuts.append((reach, None if exempt is None else exempt.pattern))
    return draw(expressions(n, m, depth=2 if weights else 3)), cuts


@settings(max_examples=80)
@given(problems(0), st.booleans())
def test_any_expression(problem: Problem, merge: bool) -> None:
    expression, _ = problem
    check(expression.pattern, expression.dense, [], merge)


@settings(max_examples=120)
@given(problems(2), st.booleans())
def test_any_expression_with_reaches_and_exempt_pairs(problem: Problem, merge: bool) -> None:
    expression, cuts = problem
    check(expression.pattern, expression.dense, cuts, merge)


N = 150

EXEMPT = {
    "nothing": None,
    "a global token": Global(1),
    "global tokens of each sample": Global(question_mask(N)),
    "global rows": Global(torch.tensor([0, 77]), columns=False),
    "global columns": Global(torch.tensor([[0, 77], [3, 3]]), rows=False),
    "a window": Window(2, 2),
    "everything": Full(),
    "everything, in other words": Window(None, None),
    "every third": Strided(3),
    "a document": SameDocument(packed_ids(N)),
    "a document out of order": SameDocument(shuffled_ids(N)),
    "random blocks": Random(1, 32),
    "a mask": Mask(torch.rand(1, 1, N, N, generator=torch.Generator().manual_seed(0)) < 0.1),
    "one pattern a head": PerHead([Global(2), Window(1, 1)]),
    "a window and a global token": Window(2, 2) | Global(1),
    "a global token, causal": Global(1) & Causal(),
}

PATTERNS = {
    "full": Full(),
    "causal": Causal(),
    "a window": Window(40, 40),
    "a window and a global token": Window(20, 5) | Global(1),
    "a dilated window": Window(9, 9, 7),
    "causal documents": Causal() & SameDocument(packed_ids(N)),
    "a mask": Mask(
        torch.rand(BATCH, HEADS, N, N, generator=torch.Generator().manual_seed(1)) < 0.5
    ),
    "one pattern a head": PerHead([Window(9, 9), Strided(4)]),
}


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("exempt", EXEMPT)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_learned_reach(pattern: str, exempt: str, merge: bool) -> None:
    reach = torch.randint(-1, 60, (BATCH, HEADS, N), dtype=torch.int32)
    check(PATTERNS[pattern], PATTERNS[pattern].dense(N), [(reach, EXEMPT[exempt])], merge)


@pytest.mark.parametrize("exempt", EXEMPT)
def test_a_weight_without_a_reach_cuts_nothing(exempt: str) -> None:
    check(Window(30, 30), Window(30, 30).dense(N), [(None, EXEMPT[exempt])], True)


@pytest.mark.parametrize("reach", [-1, 0, 1, 63, 64, N - 1, N, 2**30])
def test_a_reach_is_a_window(reach: int) -> None:
    found = compile_layout(
        Full(), (Cut(torch.full((1, 1, N), reach, dtype=torch.int32)),), N, N, CPU, merge=True
    )
    wanted = torch.zeros(1, 1, N, N, dtype=torch.bool)
    if reach >= 0:
        wanted = Window(reach, reach).dense(N)
    assert torch.equal(dense(found, 1, 1), wanted.long())


def test_static_patterns_are_compiled_once() -> None:
    for pattern, twin in (
        (Window(3, 3) | Global(1), Window(3, 3) | Global(1)),
        (PerHead([Causal(), Strided(3)]), PerHead([Causal(), Strided(3)])),
        (Random(2, 16), Random(2, 16)),
    ):
        one = compile_layout(pattern, (), 200, 200, CPU, merge=True)
        assert compile_layout(twin, (), 200, 200, CPU, merge=True) is one
        assert compile_layout(twin, (), 200, 201, CPU, merge=True) is not one
        assert compile_layout(twin, (), 199, 200, CPU, merge=True) is not one
        assert compile_layout(twin | Window(4, 0), (), 200, 200, CPU, merge=True) is not one


def test_an_exempt_pattern_is_part_of_what_is_cached() -> None:
    def compiled(exempt: Pattern | None) -> object:
        return compile_layout(Causal(), (Cut(None, exempt),), 99, 99, CPU, merge=True)

    assert compiled(Global(1)) is compiled(Global(1))
    assert compiled(Global(1)) is not compiled(Global(2))
    assert compiled(Global(1)) is not compiled(None)


def test_what_depends_on_tensors_changes_with_them() -> None:
    tokens = torch.tensor([3])
    pattern = Global(tokens)
    one = compile_layout(pattern, (), 9, 9, CPU, merge=True)
    tokens.fill_(5)
    two = compile_layout(pattern, (), 9, 9, CPU, merge=True)
    assert torch.equal(dense(one, 1, 1)[0, 0, :, 3], torch.ones(9, dtype=torch.int64))
    assert torch.equal(dense(two, 1, 1), pattern.dense(9).long())
    cut = (Cut(torch.zeros(1, 1, 9, dtype=torch.int32)),)
    assert compile_layout(Causal(), cut, 9, 9, CPU, merge=True) is not compile_layout(
        Causal(), cut, 9, 9, CPU, merge=True
    )


def test_rows_in_two_orders_merge_only_where_they_may() -> None:
    pattern = Window(3, 3) | Strided(8)
    merged = compile_layout(pattern, (), 200, 200, CPU, merge=True)
    whole = compile_layout(pattern, (), 200, 200, CPU, merge=False)
    assert merged.merged and len(merged.walks) == 2
    assert not whole.merged and len(whole.walks) == 1
    assert any("tile list" in note for note in whole.notes)


def test_many_alternatives_are_one_tile_list() -> None:
    one: Pattern = Causal() | Strided(2)
    for number in range(3, 12):
        one = one & (Strided(number) | Window(number, 0) | Global(number))
    layout = compile_layout(one, (), 100, 100, CPU, merge=True)
    assert torch.equal(dense(layout, 1, 1), one.dense(100).long())


@pytest.mark.parametrize(
    ("pattern", "n", "m", "band"),
    [
        (Window(3, 5), 40, 40, (3, 5)),
        (Window(3, 0), 40, 90, (3, 0)),
        (Window(50, 50), 40, 40, (39, 39)),
        (Causal(), 40, 40, (39, 0)),
        (Causal(), 1, 40, (39, 0)),
        (Causal() & Window(7, 7), 40, 60, (7, 0)),
        (Full(), 40, 40, (39, 39)),
        # The rows are the last ones: none has as many keys behind it as before it.
        (Full(), 40, 60, (59, 39)),
        # Some rows are before every key.
        (Full(), 60, 40, None),
        (Causal(), 60, 40, None),
        (Window(3, 3), 60, 40, None),
        (SameDocument(packed_ids(80)), 80, 80, None),
    ],
    ids=str,
)
def test_bands(pattern: Pattern, n: int, m: int, band: tuple[int, int] | None) -> None:
    """Where every row looks as far as every other, a part says how far."""
    (walk,) = compile_layout(pattern, (), n, m, CPU, merge=True).walks
    (part,) = walk.parts
    assert part.band == band


def test_parts_of_other_orders_have_no_band() -> None:
    for pattern in (Window(3, 3) | Global(2), Window(3, 3, dilation=2), Strided(4)):
        layout = compile_layout(pattern, (), 64, 64, CPU, merge=True)
        for walk in layout.walks:
            for part in walk.parts:
                if walk.queries.index is not None or part.keys.index is not None:
                    assert part.band is None


@pytest.mark.parametrize(
    "tokens", [2, torch.tensor([3, 40]), torch.arange(64)[None] % 30 == 1], ids=str
)
def test_bands_beside_global_rows(tokens: int | Tensor) -> None:
    """Rows that are walked apart are empty where the others look as far as every other."""
    layout = compile_layout(Window(3, 5) | Global(tokens), (), 64, 64, CPU, merge=True)
    (local, rows) = layout.walks
    assert [part.band for part in local.parts] == [(3, 5), None]
    assert all(part.band is None for part in rows.parts)
    low, high = local.parts[0].low[0, 0], local.parts[0].high[0, 0]
    apart = rows.queries.index[0]
    assert not (high > low)[apart].any()
    i = torch.arange(64)
    others = torch.ones(64, dtype=torch.bool)
    others[apart] = False
    assert torch.equal(low[others], (i - 3).clamp(min=0)[others])
    assert torch.equal(high[others], (i + 6).clamp(max=64)[others])


def test_reaches_in_tensors_have_no_band() -> None:
    reach = torch.full((1, 1, 40), 3, dtype=torch.int32)
    (walk,) = compile_layout(Full(), (Cut(reach, None),), 40, 40, CPU, merge=True).walks
    assert walk.parts[0].band is None


def test_exempt_pairs_leave_no_empty_part() -> None:
    """Global keys that a weight exempts are struck out of the part that it acts on."""
    exempt = Cut(None, Global(5))
    layout = compile_layout(Window(9, 9) | Global(5), (exempt,), 64, 64, CPU, merge=True)
    assert [[part.active for part in walk.parts] for walk in layout.walks] == [[0, -1], [0, 0]]
    assert [part.band for part in layout.walks[0].parts] == [None, (9, 9)]


def test_tiles_are_listed_where_they_have_pairs() -> None:
    """What is left and what is right of a window are two parts, of which a drawn block is in one;
    and where blocks are tiles, all of them are full.
    """
    n = 1024
    layout = compile_layout(bigbird(n, block=64, drawn=3), (), n, n, CPU, merge=True)
    lists = [part.tiles for walk in layout.walks for part in walk.parts if part.tiles is not None]
    places = [
        place
        for own in lists
        for place in zip(own.rows.tolist(), own.columns.tolist(), strict=True)
    ]
    assert len(lists) == 2 and len(set(places)) == len(places)
    assert all(own.whole for own in lists)
    assert pairs(layout, 1, 1) == int(bigbird(n, block=64, drawn=3).dense(n).sum())
    odd = compile_layout(bigbird(n, block=48, drawn=3), (), n, n, CPU, merge=True)
    assert not any(
        part.tiles.whole for walk in odd.walks for part in walk.parts if part.tiles is not None
    )


def test_heads_that_differ_in_windows_alone_share_walks() -> None:
    heads = PerHead([Window(1, 1), Causal(), Window(1, 1), Window(4, 0)])
    device = torch.device("cpu")
    (walk,) = compile_layout(heads, (), 9, 9, device, merge=True).walks
    assert walk.heads is None and walk.instances == 4
    reach = torch.randint(0, 5, (2, 4, 9))
    cut = compile_layout(heads, (Cut(reach),), 9, 9, device, merge=True)
    assert len(cut.walks) == 1 and cut.walks[0].parts[0].low.shape == (2, 4, 9)
    tokens = Global(torch.tensor([2, 5]))
    every = compile_layout(heads | tokens, (Cut(reach, tokens),), 9, 9, device, merge=True)
    alike = compile_layout(Window(1, 1) | tokens, (), 9, 9, device, merge=True)
    assert [walk.heads for walk in every.walks] == [None, None] == [w.heads for w in alike.walks]
    other = PerHead([Window(1, 1), Window(1, 1) | Global(2)])
    assert len(compile_layout(other, (), 9, 9, device, merge=True).walks) > 2


HEAD_WINDOWS = [(1, 1), (0, 3), (None, 0), (35, 40), (5, 2)]


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize(
    "pattern",
    [
        lambda heads: heads,
        lambda heads: heads & Causal(),
        lambda heads: heads & Strided(2),
        lambda heads: heads | Strided(3),
        lambda heads: heads | Global(2),
        lambda heads: heads | Global(question_mask(70)),
        lambda heads: (heads & Causal()) | Strided(5) | Global(1),
        lambda heads: heads | Random(1, 8, length=70),
    ],
    ids=["alone", "causal", "stride", "or a stride", "global", "marked", "several", "drawn"],
)
@pytest.mark.parametrize(("n", "m"), [(70, 70), (40, 70)])
def test_windows_of_heads(n: int, m: int, pattern: Any, merge: bool) -> None:
    own = pattern(PerHead([Window(*sides) for sides in HEAD_WINDOWS]))
    layout = compile_layout(own, (), n, m, torch.device("cpu"), merge=merge)
    wanted = own.dense(n, m).long()
    batch = max(wanted.shape[0], *(walk.batch for walk in layout.walks))
    found = dense(layout, batch, len(HEAD_WINDOWS))
    assert torch.equal(found, wanted.expand_as(found))
