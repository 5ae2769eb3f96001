"""What is said of a pattern's structure holds for its pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import longspan as ls
from longspan.nn.causality import is_causal, keys_remembered
from longspan.patterns import (
    BlockWindow,
    Causal,
    Fixed,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    Strided,
    Window,
    longformer,
    sparse_fixed,
    sparse_strided,
)
from longspan.weights import Alibi, Bell, Ramp, Weight

CASES: list[tuple[Pattern, bool, int | None]] = [
    (Full(), False, None),
    (Causal(), True, None),
    (Window(3, 0), True, 4),
    (Window(0, 0), True, 1),
    (Window(3, 0, dilation=2), True, 7),
    (Window(None, 0), True, None),
    (Window(3, 1), False, None),
    (Window(3, None), False, None),
    (Window(3, 3) & Causal(), True, 4),
    (Window(3, 3) & Window(1, 0), True, 2),
    (Window(3, 0) | Window(1, 0, dilation=5), True, 6),
    (Window(3, 0) | Window(0, 1), False, None),
    (Window(3, 0) | Causal(), True, None),
    (Causal() & (Window(2, 2) | Window(1, 1, dilation=4)), True, 5),
    (Causal() & (Window(2, 2) | Global(1)), True, None),
    (Causal() & BlockWindow(4, 1, 1), True, None),
    (BlockWindow(4, 1, 0), False, None),
    (PerHead([Window(1, 0), Window(4, 0)]), True, 5),
    (PerHead([Window(1, 0), Causal()]), True, None),
    (PerHead([Window(1, 0), Window(4, 1)]), False, None),
    (Global(1), False, None),
    (Random(1, 4, length=24), False, None),
    (Mask(torch.ones(24, 24).tril().bool()[None, None]), False, None),
    (Strided(4), False, None),
    (Fixed(4, 1), False, None),
    (sparse_strided(4), True, None),
    (sparse_fixed(4, 1), True, None),
    (longformer(2, None, causal=True), True, 3),
]


@pytest.mark.parametrize(("pattern", "causal", "keys"), CASES, ids=[repr(c[0]) for c in CASES])
def test_structure(pattern: Pattern, causal: bool, keys: int | None) -> None:
    assert is_causal(pattern) == causal
    assert keys_remembered(pattern) == keys
    mask = pattern.dense(24).any(1).any(0)
    offset = torch.arange(24)[:, None] - torch.arange(24)
    if causal:
        assert not mask[offset < 0].any()
    if keys is not None:
        assert not mask[offset >= keys].any()


WEIGHTS: list[tuple[Pattern, tuple[Weight, ...], int | None]] = [
    (Causal(), (Ramp(2.0, 3.0),), 5),
    (Causal(), (Ramp(2.5, 3.0),), 6),
    (Causal(), (Ramp(-9.0, 3.0),), 1),
    (Window(2, 0), (Ramp(2.0, 3.0),), 3),
    (Causal(), (Bell(8.0, threshold=0.5),), 4),
    (Causal(), (Bell(8.0, threshold=0.5, max_reach=2),), 3),
    (Causal(), (Bell(8.0, max_reach=6),), 7),
    (Causal(), (Bell(torch.full((1, 2, 1), 1e6), threshold=0.5, max_reach=6),), 7),
    (Causal(), (Bell(8.0, max_reach=6), Ramp(1.0, 1.0), Alibi(torch.ones(2))), 2),
    (Causal(), (Bell(8.0),), None),
    (Causal(), (Bell(torch.full((1, 2, 1), 8.0), threshold=0.5),), None),
    (Causal(), (Ramp(torch.tensor([1.0, 2.0]), 1.0),), None),
    (Causal(), (Ramp(1.0, 1.0, exempt=Global(1)),), None),
    (Causal() & Window(4, 0), (Bell(8.0, threshold=0.5, exempt=Global(1)),), None),
    (Causal() & Window(4, 0), (Bell(8.0, exempt=BlockWindow(4)),), None),
    (Full(), (Ramp(1.0, 1.0),), None),
    (Causal() & (Window(2, 2) | Global(1)), (Ramp(1.0, 1.0),), None),
]


@pytest.mark.parametrize(("pattern", "weights", "keys"), WEIGHTS, ids=[str(c[1]) for c in WEIGHTS])
def test_reaches_of_weights(pattern: Pattern, weights: Any, keys: int | None) -> None:
    """The bound holds, and no smaller one does."""
    assert keys_remembered(pattern, weights) == keys
    if keys is None:
        return
    q = torch.randn(1, 2, 24, 4)
    mass = ls.attention_map(q, q, pattern, weight=weights)[0].amax(0)
    offset = torch.arange(24)[:, None] - torch.arange(24)
    assert not mass[offset >= keys].any()
    assert keys == 1 or mass[offset == keys - 1].all()


class Onward(Window):
    """A window that sees one key more."""

    def contains(self, i: Any, j: Any, n: int, m: int) -> Any:
        return super().contains(i, j, n, m) | (j == i + 1)


@pytest.mark.parametrize(
    "pattern",
    [
        Onward(3, 0),
        Causal() & (Window(2, 0) | Random(1, 4)),
        Causal() & (Window(2, 0) | Global(-1)),
        Causal() & Global(queries=2, keys=-3),
        PerHead([Causal(), Causal() & Random(1, 4)]),
    ],
    ids=str,
)
def test_what_decoders_cannot_have(pattern: Pattern) -> None:
    """Pairs of a subclass's own, and those that change with every token that comes."""
    assert not is_causal(pattern)
    assert keys_remembered(pattern) is None


@pytest.mark.parametrize("pattern", [Random(1, 4, length=24), Random(1, 4, table=[[0]] * 6)])
def test_what_is_drawn_for_a_length_stays(pattern: Pattern) -> None:
    assert is_causal(Causal() & pattern)
