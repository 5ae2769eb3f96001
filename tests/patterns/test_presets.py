"""Patterns of published models: what the papers say of them, beyond their definition."""

from __future__ import annotations

import pytest
import torch

from longspan.patterns import (
    AnyOf,
    Causal,
    Fixed,
    Global,
    Random,
    Strided,
    Window,
    bigbird,
    longformer,
    sparse_fixed,
    sparse_strided,
)


def test_longformer() -> None:
    assert longformer() == Window(256, 256) | Global(1)
    assert longformer(8, None) == Window(8, 8)
    assert longformer(8, 2, dilation=3) == Window(8, 8, 3) | Global(2)
    question = torch.tensor([[True, False, False]])
    assert longformer(8, question) == Window(8, 8) | Global(question)


def test_a_causal_longformer_never_looks_ahead() -> None:
    found = longformer(3, 2, causal=True).dense(40)
    assert not found.triu(1).any()
    assert torch.equal(found, longformer(3, 2).dense(40).tril())


def test_sparse_transformers() -> None:
    assert sparse_strided(16) == Causal() & (Window(16, 0) | Strided(16))
    assert sparse_fixed(16, 4) == Causal() & Fixed(16, 4)
    assert sparse_strided().dense(600)[0, 0, 599].nonzero()[:, 0].tolist() == [
        87,
        215,
        343,
        *range(471, 600),
    ]


@pytest.mark.parametrize("drawn", [0, 1, 3])
@pytest.mark.parametrize("ends", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 3, 5])
def test_bigbird_draws_what_it_does_not_have(drawn: int, ends: int, window: int) -> None:
    length, block = 200, 8
    pattern = bigbird(length, block=block, window=window, drawn=drawn, ends=ends)
    parts = pattern.patterns if isinstance(pattern, AnyOf) else (pattern,)
    tables = [p.table_for(length) for p in parts if isinstance(p, Random)]
    assert len(tables) == (1 if drawn else 0)
    total = length // block
    for table in tables:
        assert len(table) == total
        for row, blocks in enumerate(table):
            assert len(set(blocks)) == len(blocks) == drawn
            assert all(abs(block - row) > window // 2 for block in blocks)
            assert all(ends <= block < total - ends for block in blocks)


def test_bigbird_of_the_paper() -> None:
    """A middle block sees both ends, itself and its neighbours, and three drawn ones: eight."""
    found = bigbird(4096).dense(4096)[0, 0]
    blocks = found.view(64, 64, 64, 64).any(3).any(1)
    assert torch.equal(blocks.repeat_interleave(64, 0).repeat_interleave(64, 1), found)
    counts = blocks.sum(1)
    assert counts[0] == counts[63] == 64
    assert (counts[2:62] == 8).all()
    assert blocks[:, 0].all() and blocks[:, 63].all()


def test_bigbird_has_fewer_drawn_blocks_where_few_are_free() -> None:
    pattern = bigbird(6 * 8, block=8, drawn=3)
    assert pattern.dense(48).all(-1).sum() >= 16


def test_bigbird_is_one_draw_a_seed() -> None:
    assert bigbird(512, seed=1) == bigbird(512, seed=1) != bigbird(512, seed=2)
    with pytest.raises(ValueError, match="length"):
        bigbird(512).dense(513)
