"""Tables in the documentation are those of the records beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("accelerate")

from longspan.lab.records import kept, read_all
from longspan.lab.rows import apart
from longspan.lab.table import as_markdown
from longspan.report.studies import study_from
from longspan.report.study_tables import as_markdown as as_text

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("table.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_tables_are_those_of_the_records(folder: Path) -> None:
    done = read_all(folder)
    assert (folder / "table.md").read_text(encoding="utf-8") == as_markdown(apart(done))
    # Whoever runs the same finds its record.
    assert all(kept(folder, planned) is not None for planned, _ in done)


def test_there_are_tables() -> None:
    assert FOLDERS


STUDIES = sorted(RESULTS.rglob("reaches.json"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_studies_are_told_as_they_were_found(path: Path) -> None:
    study = study_from(json.loads(path.read_text(encoding="utf-8")))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == as_text(study)


# A mean over seeds with its deviation, as tables and sentences write it.
FIGURE = re.compile(r"(\d+\.\d+) ± (\d+\.\d+)")
PAGES = [RESULTS.parent / "README.md", *sorted((RESULTS.parent / "docs").glob("results*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_figures_in_sentences_are_those_of_a_table(page: Path) -> None:
    cells = [
        (float(mean), float(deviation))
        for folder in FOLDERS
        for mean, deviation in FIGURE.findall((folder / "table.md").read_text(encoding="utf-8"))
    ]
    # Sentences have one digit behind the point, tables two.
    half = 0.05 + 1e-6
    for mean, deviation in FIGURE.findall(page.read_text(encoding="utf-8")):
        assert any(
            abs(float(mean) - own) <= half and abs(float(deviation) - its) <= half
            for own, its in cells
        ), f"{page.name}: {mean} ± {deviation} is in no table"
