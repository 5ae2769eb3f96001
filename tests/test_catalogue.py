"""The page about mechanisms says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from longspan.catalogue import EXAMPLES, Example, facts_of, page, save_pictures
from longspan.nn.describing import KINDS

DOCS = Path(__file__).parents[1] / "docs"


def test_every_mechanism_is_there() -> None:
    assert {type(example.make()) for example in EXAMPLES} == set(KINDS.values())


def test_page_is_as_written() -> None:
    assert (DOCS / "mechanisms.md").read_text() == page(), "python -m longspan.catalogue docs"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.code)
def test_facts(example: Example) -> None:
    facts = facts_of(example)
    assert facts["padding"] == "changes nothing"
    assert facts["gradients"] == "q, k, v and all it learns"
    assert "`reference`" not in facts["backends"]
    assert "`torch`" in facts["backends"]


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_pictures(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"mechanism-{kind.__name__.lower()}.svg" for kind in KINDS.values()}
    for name in names:
        assert (DOCS / "pictures" / name).is_file()
