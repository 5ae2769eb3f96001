"""Hops: how many layers until word has travelled."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longspan.patterns import (
    Causal,
    Fixed,
    Full,
    Global,
    Hops,
    Mask,
    Pattern,
    PerHead,
    Strided,
    Window,
    bigbird,
)

from .strategies import expressions


def by_breadth_first_search(mask: list[list[bool]]) -> tuple[int, list[int]]:
    """The longest of the shortest paths, and all of them, between different tokens."""
    found = []
    for start in range(len(mask)):
        far, waiting = {start: 0}, deque([start])
        while waiting:
            token = waiting.popleft()
            for heard, exists in enumerate(mask[token]):
                if exists and heard not in far:
                    far[heard] = far[token] + 1
                    waiting.append(heard)
        found += [length for token, length in far.items() if token != start]
    return max(found, default=0), found


@pytest.mark.parametrize(
    ("pattern", "n", "layers", "mean", "connected"),
    [
        (Full(), 5, 1, 1.0, 1.0),
        # Distances 1, 2, 3, 4 between 4, 3, 2, 1 pairs: 20 steps for 10 pairs, both ways.
        (Window(1, 1), 5, 4, 2.0, 1.0),
        (Window(2, 2), 5, 2, 1.3, 1.0),
        (Window(2, 2, dilation=2), 5, 1, 1.0, 0.4),
        # A star: 8 of the 20 ordered pairs hold the centre, the other 12 go through it.
        (Global(1), 5, 2, 1.6, 1.0),
        (Window(1, 1) | Global(1), 100, 2, None, 1.0),
        (Causal(), 5, 1, 1.0, 0.5),
        (Causal() & Window(1, 0), 5, 4, 2.0, 0.5),
        (Causal() & (Window(1, 0) | Global(1)), 5, 3, 1.4, 0.5),
        (Window(0, 1), 5, 4, 2.0, 0.5),
        (Window(0, 0), 5, 0, 0.0, 0.0),
        (Strided(2), 5, 1, 1.0, 0.4),
        (Fixed(2, 1), 4, 2, None, None),
        (Global(1, columns=False), 5, 1, 1.0, 0.2),
        (Global(1, rows=False), 5, 1, 1.0, 0.2),
        (Full(), 1, 0, 0.0, 1.0),
        (Mask(torch.zeros(1, 1, 4, 4, dtype=torch.bool)), 4, 0, 0.0, 0.0),
        # A ring: word goes one way around.
        (Mask(torch.eye(4).roll(1, 1).bool()[None, None]), 4, 3, 2.0, 1.0),
    ],
)
def test_by_hand(
    pattern: Pattern, n: int, layers: int, mean: float | None, connected: float | None
) -> None:
    found = pattern.hops(n)
    assert isinstance(found, Hops)
    assert found.layers == layers
    assert mean is None or found.mean == pytest.approx(mean)
    assert connected is None or found.connected == pytest.approx(connected)


@pytest.mark.parametrize("reach", [1, 3, 10, 50])
def test_a_window_needs_its_reach_again_and_again(reach: int) -> None:
    assert Window(reach, reach).hops(101).layers == -(-100 // reach)


def test_a_global_token_brings_any_window_to_two_layers() -> None:
    alone, joined = Window(3, 3).hops(64), (Window(3, 3) | Global(1)).hops(64)
    assert alone.layers == 21 and joined.layers == 2
    assert joined.mean < 2 < alone.mean
    assert bigbird(64, block=4).hops(64).layers == 2


def test_causal_patterns_connect_half() -> None:
    for pattern in (Causal(), Causal() & Window(1, 0), Causal() & (Strided(8) | Window(8, 0))):
        assert pattern.hops(64).connected == pytest.approx(0.5)


def test_a_layer_joins_its_heads() -> None:
    assert PerHead([Full(), Window(1, 1)]).hops(5) == Full().hops(5)
    assert PerHead([Window(2, 0), Window(0, 2)]).hops(9) == Window(2, 2).hops(9)


def test_of_several_samples_too() -> None:
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[0, 2] = True
    found = (Window(1, 1) | Global(mask)).hops(6)
    assert found.layers == 5 and found.connected == 1


@given(st.integers(1, 30), st.data())
def test_by_breadth_first_search(n: int, data: st.DataObject) -> None:
    pattern = data.draw(expressions(n, n, depth=1)).pattern
    found = pattern.hops(n)
    masks = pattern.dense(n).any(1).tolist()
    searched = [by_breadth_first_search(mask) for mask in masks]
    lengths = [length for _, own in searched for length in own]
    assert found.layers == max(longest for longest, _ in searched)
    assert found.mean == pytest.approx(sum(lengths) / max(len(lengths), 1))
    pairs = len(masks) * n * (n - 1)
    assert found.connected == (pytest.approx(len(lengths) / pairs) if pairs else 1)
