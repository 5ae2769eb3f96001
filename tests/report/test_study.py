"""What the reach learned, on the page, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from longspan import report
from longspan.report.studies import study_from
from longspan.report.study_tables import as_markdown, study_tables

from .fakes import study_of, write_run
from .pages import Element, read_page


def section_of(page: Element) -> Element:
    (found,) = page.all("section", id="learned")
    return found


def test_a_run_with_a_study_shows_it(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", kind="SlidingWindow", lines=12)
    learned = write_run(tmp_path / "learned", lines=12, study=study_of())
    section = section_of(read_page(report.write([plain, learned], tmp_path / "report.html")))
    assert section.one("h2").text == "What the reach learned"
    assert "1,234 tokens of 64 dev examples" in section.text
    assert [own.text for own in section.all("h4")] == [
        "Reach by kind of token",
        "Reach by layer and head",
        "Reach by distance to the answer",
        "What explains the reach",
    ]
    assert len(section.all("svg")) == 3 and len(section.all("figure")) == 3
    kinds = section.all("table")[0]
    rows = [[cell.text for cell in row.all("th", "td")] for row in kinds.all("tr")]
    # What no token is has no row.
    assert rows == [
        ["token", "tokens", "all layers", "layer 1", "layer 2"],
        ["mark", "10", "5", "5", "6"],
        ["number", "30", "7", "7", "8"],
    ]
    tints = [[cell.attributes.get("style") for cell in row.all("td")] for row in kinds.all("tr")]
    assert tints[1:] == [
        [None, "--t: 0", "--t: 0", "--t: 33"],
        [None, "--t: 67", "--t: 67", "--t: 100"],
    ]
    assert "“<far>” 20.5" in section.text and "“near¦” 1.25" in section.text


def test_without_a_study_there_is_no_section(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines=12)
    assert not read_page(report.write([run], tmp_path / "report.html")).all("section", id="learned")


def test_a_study_without_answers_has_heads_and_positions(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lines=12, study=study_of(answers=False, layers=1))
    section = section_of(read_page(report.write([run], tmp_path / "report.html")))
    assert [own.text for own in section.all("h4")] == [
        "Reach by layer and head",
        "What explains the reach",
    ]
    assert len(section.all("svg")) == 1


def test_a_broken_study_is_said(tmp_path: Path) -> None:
    study = study_of()
    study["by"]["kind"]["layers"] = [[1.0]]
    run = write_run(tmp_path / "run", lines=12, study=study)
    page = read_page(report.write([run], tmp_path / "report.html"))
    assert not page.all("section", id="learned")
    assert "reaches.json cannot be shown: by.kind.layers must be a list of 2" in page.text


def test_markdown() -> None:
    text = as_markdown(study_from(study_of()))
    lines = text.splitlines()
    assert lines[0] == "# What the reach learned"
    assert "| token | tokens | all layers | layer 1 | layer 2 |" in lines
    assert "| number | 30 | 7 | 7 | 8 |" in lines
    assert "| layer 2 | 8 | 7 | 32 | 8 | 8 |" in lines
    assert "| the layer | 12% | – | – |" in lines
    assert "| which token it is | – | – | – |" in lines
    assert "Tokens that look least far: “near¦” 1.25." in lines
    # Rows of a table have as many cells as its head.
    for table in study_tables(study_from(study_of())):
        assert all(len(values) == len(table.columns) - 1 for _, values in table.rows)


def test_pictures_have_panels_for_what_is_known(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from longspan.report.study_picture import save_study_picture

    sizes = []
    for name, study in (
        ("whole", study_of()),
        ("small", study_of(answers=False, layers=1)),
        ("deep", study_of(layers=12, heads=12)),
    ):
        path = tmp_path / f"{name}.svg"
        save_study_picture(study_from(study), path)
        text = path.read_text()
        assert text.count('<g id="axes_') == {"whole": 5, "small": 3, "deep": 5}[name]
        again = tmp_path / "again.svg"
        save_study_picture(study_from(study), again)
        assert again.read_bytes() == path.read_bytes()
        sizes.append(len(text))
    assert max(sizes) < 500_000
