"""Global tokens: the forms in which they are given."""

from __future__ import annotations

import pytest
import torch

import longspan as ls
from longspan.patterns import Global, Window


def test_three_forms_of_one_pattern() -> None:
    mask = torch.zeros(9, dtype=torch.bool)
    mask[:2] = True
    found = Global(2).dense(9)
    assert torch.equal(found, Global(torch.tensor([1, 0])).dense(9))
    assert torch.equal(found, Global(mask).dense(9))
    assert torch.equal(found, Global(mask[None]).dense(9))


def test_rows_and_columns_together_are_all() -> None:
    rows, columns = Global(2, columns=False), Global(2, rows=False)
    assert torch.equal((rows | columns).dense(9), Global(2).dense(9))
    assert int((rows & columns).dense(9).sum()) == 4
    assert torch.equal(rows.dense(9), columns.dense(9).transpose(-1, -2))


def test_rows_are_positions_and_queries_are_rows() -> None:
    """With three queries of nine keys, position 6 is row 0."""
    assert Global(torch.tensor([6]), columns=False).dense(3, 9)[0, 0].all(1).tolist() == [
        True,
        False,
        False,
    ]
    assert Global(queries=torch.tensor([0])).dense(3, 9)[0, 0].all(1).tolist() == [
        True,
        False,
        False,
    ]
    assert not Global(torch.tensor([0]), columns=False).dense(3, 9).any()


def test_samples_have_their_own() -> None:
    found = Global(torch.tensor([[0], [2]])).dense(3)
    assert found.shape == (2, 1, 3, 3)
    assert found[0, 0].tolist() == [[True, True, True], [True, False, False], [True, False, False]]
    assert found[1, 0].tolist() == [[False, False, True], [False, False, True], [True, True, True]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("m", [127, 128, 255, 256, 300, 33_000])
def test_small_numbers_name_tokens_of_long_texts(dtype: torch.dtype, m: int) -> None:
    """Lengths that their dtype cannot hold do not wrap round."""
    places = torch.tensor([[0, 100, 7], [90, 3, 3]])
    for n in (2, 40):
        for wide, narrow in (
            (Global(places), Global(places.to(dtype))),
            (Global(places[0], rows=False), Global(places[0].to(dtype), rows=False)),
            (Global(queries=places % n), Global(queries=(places % n).to(dtype))),
        ):
            assert torch.equal(narrow.dense(n, m), wide.dense(n, m))
            q, k = torch.randn(2, 1, n, 4), torch.randn(2, 1, m, 4)
            ls.check(q, k, k, narrow)
            found = ls.attention(q, k, k, narrow)
            assert torch.equal(found, ls.attention(q, k, k, wide))
    with pytest.raises(ValueError, match=r"Global: keys must be within \[0, 99\], got 100"):
        ls.check(q, k[:, :, :100], k[:, :, :100], Global(keys=places[0].to(dtype)))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_dtypes_that_hardly_compute_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"Global: tokens must be positions .*uint"):
        Global(torch.tensor([1]).to(dtype))


def test_a_mask_is_of_one_size() -> None:
    mask = torch.tensor([True, False, False])
    for pattern in (Global(mask), Global(mask[None]), Global(queries=mask), Global(keys=mask)):
        for n, m in ((4, 4), (2, 2)):
            with pytest.raises(ValueError, match=rf"Global: .* must cover {m} positions"):
                pattern.dense(n, m)


def test_a_mask_is_not_positions() -> None:
    """A bool tensor of two entries is a mask of two tokens, never the positions 0 and 1."""
    with pytest.raises(ValueError, match="Global: tokens"):
        Global(torch.tensor([True, False])).check(1, 1, 5, 5)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (Global(3), "Global(3)"),
        (Global(-3, rows=False), "Global(-3, rows=False)"),
        (Global(1, columns=False), "Global(1, columns=False)"),
        (Global(queries=1, keys=2), "Global(queries=1, keys=2)"),
        (Global(torch.tensor([1])), "Global(an int64 tensor of shape (1,))"),
    ],
)
def test_repr(pattern: Global, text: str) -> None:
    assert repr(pattern) == text


def test_samples_with_fewer_positions_fill_up() -> None:
    """By −1, which is no token: neither the last one, nor any."""
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, [1, 4]] = True
    mask[2, 5] = True
    filled = Global(torch.tensor([[1, 4], [-1, -1], [5, -1]]))
    assert torch.equal(filled.dense(6), Global(mask).dense(6))
    q, k, v = (torch.randn(3, 2, 6, 4) for _ in range(3))
    for pattern in (filled, Window(1, 1) | filled):
        found = ls.attention(q, k, v, pattern)
        wanted = ls.attention(q, k, v, pattern, backend="reference")
        torch.testing.assert_close(found, wanted)
