"""Random blocks: one draw, kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longspan.patterns import Random


@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 10**9), st.integers(1, 200))
def test_a_draw_has_different_blocks_that_exist(blocks: int, block: int, seed: int, m: int) -> None:
    table = Random(blocks, block, seed).table_for(m)
    total = -(-m // block)
    assert len(table) == total
    for row in table:
        assert len(row) == len(set(row)) == min(blocks, total)
        assert all(0 <= drawn < total for drawn in row)


def test_one_draw_a_seed_whatever_the_generator() -> None:
    torch.manual_seed(1)
    one = Random(3, 8, seed=5).dense(200)
    torch.manual_seed(2)
    assert torch.equal(one, Random(3, 8, seed=5).dense(200))
    assert not torch.equal(one, Random(3, 8, seed=6).dense(200))


def test_a_shorter_input_uses_the_same_table() -> None:
    pattern = Random(3, 8, length=200)
    whole = pattern.dense(200)
    for m in (1, 7, 8, 100, 199):
        assert torch.equal(pattern.dense(m), whole[..., :m, :m])
        assert torch.equal(pattern.dense(1, m), whole[..., m - 1 : m, :m])


def test_a_longer_input_raises() -> None:
    pattern = Random(3, 8, length=200)
    for call in (pattern.dense, pattern.pairs, pattern.table_for):
        with pytest.raises(ValueError, match=r"Random: .*length 200.* 201"):
            call(201)
    with pytest.raises(ValueError, match=r"Random: .*length 200.* 201"):
        pattern.check(1, 1, 3, 201)
    pattern.check(1, 1, 500, 200)


def test_a_table_is_the_draw() -> None:
    pattern = Random(2, 2, table=[[1], [0, 2], []])
    assert pattern.length == 6
    assert pattern.dense(6)[0, 0].int().tolist() == [
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1],
        [1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    filled_up = Random(2, 2, table=torch.tensor([[1, -1], [0, 2], [-1, -1]]))
    assert torch.equal(filled_up.dense(6), pattern.dense(6))


def test_a_table_of_another_model_can_be_given_again() -> None:
    drawn = Random(3, 8, seed=4, length=100)
    again = Random(3, 8, length=100, table=drawn.table_for(100))
    assert torch.equal(drawn.dense(100), again.dense(100))


def test_a_drawn_pattern_is_a_value() -> None:
    assert Random(2, 8, 1, 100) == Random(2, 8, seed=1, length=100) != Random(2, 8, 2, 100)
    table = [[0], [1]]
    assert Random(1, 8, table=table) == Random(1, 8, table=torch.tensor(table))
    assert hash(Random(1, 8, table=table)) == hash(Random(1, 8, table=torch.tensor(table)))
