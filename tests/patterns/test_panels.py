"""Small pictures for a terminal, and what pictures in files are made of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longspan.patterns import Causal, Full, Global, Pattern, PerHead, Strided, Window
from longspan.patterns.drawing import _rectangles, draw_compact, save_picture


def test_wide_text_is_shaded() -> None:
    assert Full().draw(128).splitlines() == ["█" * 64] * 32
    # One pair in a block of many is still seen.
    assert set(Strided(128).draw(128).replace("\n", "")) == {" ", "░"}


def test_compact_text_has_two_queries_a_line() -> None:
    assert draw_compact(Causal().dense(4)[0, 0]) == "█▄  \n███▄"
    assert draw_compact(Causal().dense(3)[0, 0]) == "█▄ \n▀▀▀"


@given(
    st.integers(1, 6).flatmap(
        lambda m: st.lists(st.lists(st.booleans(), min_size=m, max_size=m), min_size=1, max_size=6)
    )
)
def test_rectangles_cover_each_cell_once(rows: list[list[bool]]) -> None:
    cells = torch.tensor(rows)
    covered = torch.zeros(cells.shape, dtype=torch.int64)
    for left, right, top, bottom in _rectangles(cells):
        covered[top:bottom, left:right] += 1
    assert torch.equal(covered, cells.long())


def test_whole_blocks_are_few_rectangles() -> None:
    assert _rectangles(Full().dense(9)[0, 0]) == [(0, 9, 0, 9)]
    assert len(_rectangles(Global(1).dense(9)[0, 0])) == 2


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize(
    ("pattern", "length"), [(PerHead([Causal(), Full(), Window(1, 1)]), 6), (Strided(4), 100)]
)
def test_a_picture_is_the_same_every_time(
    pattern: Pattern, length: int, suffix: str, tmp_path: Path
) -> None:
    pictures = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for picture in pictures:
        pattern.draw(length, path=picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_broken_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_picture(Causal().dense(4), tmp_path / "causal.png")
    assert list(tmp_path.iterdir()) == []


def test_the_users_own_plots_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pyplot keeps the figures and the backend of a whole process: whoever imports it here fails.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    Causal().draw(4, path=tmp_path / "causal.png")
    assert (tmp_path / "causal.png").exists()


def test_says_what_to_install_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'longspan\[report\]'"):
        Causal().draw(4, path=tmp_path / "causal.png")
    assert Causal().draw(1) == "■"
