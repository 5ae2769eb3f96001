"""Windows: their counts, by hand."""

from __future__ import annotations

import torch

from longspan.patterns import BlockWindow, Full, Window


def keys(row: torch.Tensor) -> list[int]:
    return row.nonzero()[:, 0].tolist()


def test_counts_are_inclusive() -> None:
    assert int(Window(128, 128).dense(1000)[0, 0, 500].sum()) == 257
    assert keys(Window(2, 1).dense(6)[0, 0, 3]) == [1, 2, 3, 4]
    assert keys(Window(0, 0).dense(6)[0, 0, 3]) == [3]


def test_a_dilated_window_counts_steps() -> None:
    assert keys(Window(2, 2, dilation=3).dense(20)[0, 0, 9]) == [3, 6, 9, 12, 15]
    assert keys(Window(None, 0, dilation=4).dense(20)[0, 0, 9]) == [1, 5, 9]


def test_one_query_is_the_last() -> None:
    assert keys(Window(3, 3).dense(1, 9)[0, 0, 0]) == [5, 6, 7, 8]


def test_more_queries_than_keys_begin_before_the_first() -> None:
    found = Window(1, 2).dense(5, 2)[0, 0]
    assert [keys(row) for row in found] == [[], [0], [0, 1], [0, 1], [0, 1]]


def test_whole_blocks() -> None:
    found = BlockWindow(2, 1, 1).dense(6)[0, 0]
    assert [keys(row) for row in found[::2]] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [2, 3, 4, 5]]
    assert torch.equal(found[::2], found[1::2])


def test_unbounded_is_everything() -> None:
    assert torch.equal(Window(None, None).dense(7), Full().dense(7))


def test_pairs_of_a_long_window_are_counted_in_parts() -> None:
    """More pairs than are looked at at once: they are counted in parts."""
    n = 1 << 13
    assert Window(3, 0).pairs(n) == 4 * n - 6
