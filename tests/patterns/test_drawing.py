"""Pictures of masks."""

from __future__ import annotations

from pathlib import Path

import pytest

from longspan.patterns import Causal, Full, PerHead, Window


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
