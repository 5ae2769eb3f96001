"""Pictures of masks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from longspan.patterns import Causal, Full, Global, Mask, Pattern, PerHead, Random, Window
from longspan.patterns.base import _telling


def test_text_by_hand() -> None:
    assert Causal().draw(3) == "■ · ·\n■ ■ ·\n■ ■ ■"
    assert Window(0, 0).draw(2, 3) == "· ■ ·\n· · ■"


def test_heads_are_named() -> None:
    text = PerHead([Full(), Causal()]).draw(2)
    assert text == "head 0\n■ ■\n■ ■\n\nhead 1\n■ ·\n■ ■"


@pytest.mark.parametrize("name", ["a.png", "deep/er/b.svg"])
def test_a_picture_is_written(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / name
    text = PerHead([Causal(), Window(2, 2)]).draw(8, path=path)
    assert text and path.stat().st_size > 0
    assert [p.name for p in path.parent.iterdir()] == [path.name], "nothing is left beside it"


def test_only_formats_that_are_known(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match=r"\.png or \.svg.*a\.txt"):
        Causal().draw(8, path=tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pattern", "n"),
    [
        (Window(2, 2), 32),
        (Window(128, 128) | Global(1), 1024),
        (Causal() & Window(64, 0), 128),
        # All of it, and more than half of it, at any length.
        (Full(), 32),
        (Causal(), 32),
        (Window(4000, 4000), 32),
        (PerHead([Window(2, 2), Full()]), 32),
        # Made for no more tokens.
        (Random(2, block=3, length=50), 32),
    ],
    ids=repr,
)
def test_a_notebook_shows_as_many_tokens_as_tell_the_shape(pattern: Pattern, n: int) -> None:
    pytest.importorskip("matplotlib")
    mask = _telling(pattern)
    assert mask is not None and mask.shape[-2:] == (n, n)
    shown = pattern._repr_svg_()
    assert shown is not None and shown.startswith("<?xml") and "<svg" in shown


def test_a_notebook_shows_text_alone_where_a_picture_is_not_had() -> None:
    assert Mask(torch.ones(1, 1, 5, 5, dtype=torch.bool))._repr_svg_() is None
    assert Random(2, block=3, length=20)._repr_svg_() is None
