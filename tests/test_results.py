"""Tables in the documentation are those of the records beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("accelerate")

from longspan.lab.records import kept, read_all
from longspan.lab.table import as_markdown

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("table.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_tables_are_those_of_the_records(folder: Path) -> None:
    done = read_all(folder)
    assert (folder / "table.md").read_text(encoding="utf-8") == as_markdown(done)
    # Whoever runs the same finds its record.
    assert all(kept(folder, planned) is not None for planned, _ in done)


def test_there_are_tables() -> None:
    assert FOLDERS
