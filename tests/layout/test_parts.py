"""Padding, and layouts as values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longspan.layout import TILE, Cut, Order, compile_layout, dense, pairs, tiles_touched
from longspan.patterns import Causal, Full, Global, Strided, Window

from ..patterns.strategies import BATCH, HEADS, chance, expressions, sizes
from .expand import expand

CPU = torch.device("cpu")


@settings(max_examples=40)
@given(sizes, st.data(), st.integers(0, 1000), st.booleans())
def test_padding_takes_keys_away(
    size: tuple[int, int], data: st.DataObject, seed: int, merge: bool
) -> None:
    n, m = size
    expression = data.draw(expressions(n, m, depth=2))
    real = chance(seed, data.draw(st.sampled_from([0.0, 0.5, 1.0])), BATCH, m)
    layout = compile_layout(expression.pattern, (), n, m, CPU, merge=merge)
    before = dense(layout, BATCH, HEADS)
    padded = layout.with_padding(real)
    wanted = (expression.dense & real[:, None, None]).expand(BATCH, HEADS, n, m).long()
    assert torch.equal(dense(padded, BATCH, HEADS), wanted)
    assert torch.equal(expand(padded, BATCH, HEADS)[0], wanted)
    assert pairs(padded, BATCH, HEADS) == int(wanted.sum())
    assert torch.equal(dense(layout, BATCH, HEADS), before), "the layout itself is as it was"


def test_padding_joins_a_reach() -> None:
    reach = torch.full((1, 1, 99), 7, dtype=torch.int32)
    real = torch.arange(99) >= torch.tensor([[0], [50]])
    layout = compile_layout(Causal(), (Cut(reach, Global(1)),), 99, 99, CPU, merge=True)
    wanted = (Causal() & (Window(7, 7) | Global(1))).dense(99) & real[:, None, None]
    assert torch.equal(dense(layout.with_padding(real), BATCH, 1), wanted.long())


def test_a_layout_on_its_own_device_is_the_same() -> None:
    layout = compile_layout(Window(3, 3) | Global(2) | Strided(9), (), 99, 99, CPU, merge=True)
    assert torch.equal(dense(layout.to(CPU), 1, 1), dense(layout, 1, 1))


def test_an_order_lists_values() -> None:
    values = torch.tensor([[10, 11, 12]])
    assert torch.equal(Order(3).of(values), values)
    assert Order(2, torch.tensor([[2, 0], [1, 2]])).of(values).tolist() == [[12, 10], [11, 12]]


def test_shared_pairs_count_for_every_sample_and_head() -> None:
    layout = compile_layout(Full(), (), 100, 130, CPU, merge=True)
    assert pairs(layout, 3, 5) == 15 * 100 * 130
    assert tiles_touched(layout, 3, 5) == 15 * 2 * 3
    assert TILE == 64


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0)])
def test_nothing_has_no_walks(n: int, m: int) -> None:
    layout = compile_layout(Full(), (), n, m, CPU, merge=True)
    assert layout.walks == () and pairs(layout, 2, 2) == 0 == tiles_touched(layout, 2, 2)
