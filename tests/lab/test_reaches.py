"""`longspan reaches`: three files and a table from a run, and a report that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longspan.cli import app
from longspan.training import RunConfig, Stage, train

from ..small_tasks import trained_on

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")
pytest.importorskip("matplotlib")


def ran(*arguments: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, [str(own) for own in arguments])
    assert found.exit_code == code, (found.output, found.exception)
    return " ".join(found.output.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_on("squad", tmp_path_factory.mktemp("reaches"))


def test_three_files_and_a_table(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    text = ran("reaches", run, "-o", folder, "--examples", 1, "--device", "cpu")
    assert "Reach by kind of token" in text and "function word" in text
    assert "Reach by layer and head" in text and "What explains the reach" in text
    assert sorted(path.name for path in folder.iterdir()) == [
        "reaches.json",
        "reaches.md",
        "reaches.svg",
    ]
    found = json.loads((folder / "reaches.json").read_text())
    assert found["task"] == "squad" and found["examples"] == 1
    assert (folder / "reaches.md").read_text().startswith("# What the reach learned\n")
    assert "<svg" in (folder / "reaches.svg").read_text()
    assert not (run / "reaches.json").exists()


def test_a_report_shows_what_lies_in_the_run(run: Path, tmp_path: Path) -> None:
    ran("reaches", run)
    ran("report", run, "-o", tmp_path / "report.html")
    assert "What the reach learned" in (tmp_path / "report.html").read_text()
    (run / "reaches.json").unlink()


def test_a_run_without_learned_windows_is_said(tmp_path: Path) -> None:
    config = RunConfig(
        task={"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
        model={"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
        mechanism={"kind": "SlidingWindow", "left": 2},
        stages=[Stage(steps=1, batch=2)],
        output=str(tmp_path / "run"),
    )
    train(config)
    text = ran("reaches", tmp_path / "run", "-o", tmp_path / "out", code=2)
    assert text == (
        "Error: reaches: the model has no learned windows, its layers have SlidingWindow: name a "
        "run whose mechanism is LearnedWindow"
    )
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there_is_said(run: Path, tmp_path: Path) -> None:
    text = ran("reaches", run, "-o", tmp_path, "--device", "nowhere", code=2)
    assert text.startswith("Error: --device nowhere cannot be used:")
