"""What a layout costs: tiles that follow the pairs, and a compilation that follows the length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longspan.layout import TILE, Cut, Layout, compile_layout, pairs, tiles_touched
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
    SameDocument,
    Strided,
    Window,
    bigbird,
    longformer,
    sparse_fixed,
    sparse_strided,
)

CPU = torch.device("cpu")


def compiled(pattern: Pattern, n: int, cuts: tuple[Cut, ...] = (), merge: bool = True) -> Layout:
    return compile_layout(pattern, cuts, n, n, CPU, merge=merge)


def cost(pattern: Pattern, n: int, cuts: tuple[Cut, ...] = (), merge: bool = True) -> int:
    heads = len(pattern.patterns) if isinstance(pattern, PerHead) else 1
    return tiles_touched(compiled(pattern, n, cuts, merge), 1, heads)


class Largest(TorchDispatchMode):
    """Watches every operator: the elements of the largest tensor it gave, and of all together."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.total = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        for value in tree_leaves(given):
            if isinstance(value, torch.Tensor):
                size = value.untyped_storage().nbytes() // value.element_size()
                self.most, self.total = max(self.most, size), self.total + size
        return given


LINEAR: dict[str, Callable[[int], Pattern]] = {
    "a window": lambda n: Window(128, 128),
    "a causal window": lambda n: Causal() & Window(255, 0),
    "a dilated window": lambda n: Window(8, 8, 64),
    "a window and a global token": lambda n: Window(128, 128) | Global(1),
    "longformer, causal": lambda n: longformer(64, causal=True),
    "blocks": lambda n: BlockWindow(64, 1, 1),
    "random blocks": lambda n: Random(2, 64),
    "bigbird": lambda n: bigbird(n),
    "one pattern a head": lambda n: PerHead([Window(64, 64), Window(8, 8, 16)]),
}


@pytest.mark.parametrize("name", LINEAR)
def test_twice_the_length_is_twice_the_tiles(name: str) -> None:
    one, two = (cost(LINEAR[name](n), n) for n in (1 << 15, 1 << 16))
    assert 1.9 < two / one < 2.1


@pytest.mark.parametrize("reach", [0, 31, 64, 200])
def test_a_window_touches_its_own_tiles(reach: int) -> None:
    """A block of 64 queries sees 63 + 2·reach + 1 keys, which lie on so many tiles."""
    n = 4096
    each = 1 + 2 * -(-reach // TILE)
    assert cost(Window(reach, reach), n) <= each * n // TILE
    assert cost(Window(reach, 0), n) <= (1 + -(-reach // TILE)) * n // TILE


def test_a_learned_reach_costs_what_it_sees() -> None:
    n = 4096
    short = torch.full((1, 1, n), 5, dtype=torch.int32)
    assert cost(Full(), n, (Cut(short),)) == cost(Window(5, 5), n)
    one_far = short.clone()
    one_far[0, 0, 2000] = n
    assert cost(Full(), n, (Cut(one_far),)) <= cost(Window(5, 5), n) + n // TILE
    # A column is a tile for each block of rows, a row one for each block of keys.
    with_token = cost(Full(), n, (Cut(short, Global(1)),))
    assert with_token <= cost(Window(5, 5), n) + 2 * n // TILE + 2


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        (Window(8, 8, 64), 5),
        (Window(50, 50, 7), 3),
        (Causal() & Window(200, 0, 16), 3),
        (Strided(64), 1.1),
        (Strided(100), 5),
        (Causal() & Strided(64), 2.1),
        (Strided(8), 1.1),
        (Fixed(64, 4), 1.5),
        (Fixed(100, 10), 2),
        (sparse_fixed(128, 16), 2.5),
        (sparse_strided(64), 3),
        (Window(100, 100) | Global(1), 2.5),
        (Global(40), 2),
        (Window(4, 4, 16) | Global(64), 3),
        (BlockWindow(64, 1, 1), 1.01),
        (Random(3, 64), 1.01),
    ],
)
def test_cost_follows_the_pairs(pattern: Pattern, most: float) -> None:
    """So many times as many pairs are computed as exist, where dense tiles are the best there is.

    A window of w keys lies on tiles of w + 126 at most; a residue class that is shorter than a tile
    shares it with its neighbours. Without another order, `Strided(100)` would be 100.
    """
    n = 4096
    layout = compiled(pattern, n)
    assert tiles_touched(layout, 1, 1) * TILE * TILE <= most * pairs(layout, 1, 1)


@pytest.mark.parametrize("merge", [True, False])
def test_spread_out_pairs_are_re_ordered_for_every_normaliser(merge: bool) -> None:
    n = 4096
    in_place = 17 * n // TILE
    assert cost(Window(8, 8, 64), n, merge=merge) < in_place / 4
    assert cost(Strided(64), n, merge=merge) == n // TILE
    assert cost(Window(8, 8, 64) | Global(1), n, merge=merge) < in_place / 3


def test_documents_cost_what_they_hold() -> None:
    ids = torch.arange(4096) // 128
    assert cost(SameDocument(ids), 4096) == 4096 // 64 * 2
    assert cost(SameDocument(ids) & Causal(), 4096) == 4096 // 64 * 3 // 2


def test_global_rows_do_not_make_their_neighbours_long() -> None:
    n = 4096
    tokens = torch.arange(0, n, 512)
    alone = cost(Window(64, 64), n)
    assert cost(Window(64, 64) | Global(tokens), n) <= alone + 3 * n // TILE


def test_a_mask_of_few_tiles_lists_few() -> None:
    """Masks are tile lists: only tiles with pairs are there, and equal ones share their bits."""
    blocks = torch.eye(8, dtype=torch.bool).repeat_interleave(64, 0).repeat_interleave(64, 1)
    full = compiled(Mask(blocks[None, None]), 512)
    assert tiles_touched(full, 1, 1) == 8
    lower = compiled(Mask((blocks & torch.ones(512, 512).tril().bool())[None, None]), 512)
    (part,) = lower.walks[0].parts
    assert part.tiles is not None and len(part.tiles.rows) == 8 and len(part.tiles.masks) == 1


LONG = 1 << 20

COMPILED = {
    "full": Full(),
    "causal": Causal(),
    "a window": Window(128, 128),
    "a dilated window": Window(128, 128, 64),
    "a causal window and a global token": Causal() & (Window(128, 0) | Global(1)),
    "strided": Causal() & (Window(1024, 0) | Strided(1024)),
    "fixed": Causal() & Fixed(1024, 8),
    "documents": SameDocument(torch.arange(LONG) // 1000),
    "one pattern a head": PerHead([Window(128, 128), Strided(1000)]),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_million_tokens_compile_without_a_mask(name: str) -> None:
    """No tensor is larger than a few numbers for each token, nor are all of them together."""
    with Largest() as seen:
        layout = compile_layout(COMPILED[name], (), LONG, LONG, CPU, merge=True)
    assert layout.walks
    assert 0 < seen.most <= 4 * LONG
    assert seen.total <= 400 * LONG


def test_a_million_learned_reaches_compile_without_a_mask() -> None:
    reach = torch.randint(0, 200, (1, 1, LONG), dtype=torch.int32)
    with Largest() as seen:
        layout = compiled(Causal(), LONG, (Cut(reach, Global(1)),))
    assert layout.walks
    assert 0 < seen.most <= 4 * LONG
    assert seen.total <= 400 * LONG


@pytest.mark.parametrize("pattern", [Window(128, 128), Window(64, 0) | Global(1)])
def test_the_tiles_of_a_million_tokens_are_counted_without_a_mask(pattern: Pattern) -> None:
    with Largest() as seen:
        found = tiles_touched(compiled(pattern, LONG), 1, 1)
    assert found <= 7 * LONG // TILE
    assert seen.most <= 8 * LONG


@pytest.mark.parametrize(
    "pattern",
    [
        Strided(2**31 - 1),
        Window(3, 3, dilation=2**31 - 1),
        Strided(99_991) & Window(5, None, dilation=100_003),
        Strided(2**31 - 1) & Strided(2**31 - 2) & Strided(2**31 - 3),
    ],
    ids=repr,
)
@pytest.mark.parametrize(("n", "m"), [(90, 90), (40, 90), (90, 40)])
def test_strides_longer_than_the_text_cost_nothing(pattern: Pattern, n: int, m: int) -> None:
    with Largest() as seen:
        layout = compile_layout(pattern, (), n, m, CPU, merge=True)
    assert 0 < seen.most <= 4 * (n + m)
    assert pairs(layout, 1, 1) == pattern.pairs(n, m) == min(n, m)


def test_random_blocks_are_found_from_their_table() -> None:
    """256 tiles are looked at at once, of 4096 pairs and so many drawn blocks each."""
    n = 1 << 15
    with Largest() as seen:
        layout = compiled(Random(2, 64, seed=9), n)
        assert tiles_touched(layout, 1, 1) == 2 * n // TILE
    assert seen.most <= 2 * 256 * TILE * TILE < n * n // 100


def test_the_largest_tensor_is_seen() -> None:
    with Largest() as seen:
        torch.ones(30, 30).sum()
    assert seen.most == 900
