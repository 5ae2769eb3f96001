"""The task of the docs, "your own task in 40 lines", from the command line: data, training, report,
and what was trained.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longspan as ls
from longspan.cli import app
from longspan.training import RunConfig, Stage, train

pytest.importorskip("accelerate")

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
NAME = "language.py:Language"


def ran(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 0, (found.output, found.exception)
    return " ".join(found.output.split())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file as it stands in the docs, beside the data that it reads."""
    monkeypatch.chdir(tmp_path)
    found = re.search(r'^```python title="language.py"\n(.*?)^```$', PAGE.read_text(), re.M | re.S)
    assert found is not None
    Path("language.py").write_text(found[1])
    said = {"en": "the cat and the dog of the house", "de": "die Katze und der Hund im Haus"}
    lines = [f"{name}\t{text[n % 9 :]}\n" for n in range(40) for name, text in said.items()]
    Path("lines.tsv").write_text("".join(lines))
    return found[1]


def test_it_has_40_lines(own: str) -> None:
    code = own[own.index("class Language") :].splitlines()
    assert len([line for line in code if line.strip()]) <= 40


def test_from_data_to_report(own: str) -> None:
    text = ran("data", NAME, "--data", "lines.tsv")
    assert "language: classes, measured by accuracy" in text
    assert "64 examples to learn from, 16 to measure on" in text
    text = ran(
        "compare", NAME, "--data", "lines.tsv", "--mechanisms", "window,learned", "--seeds", "1",
        "--reach", "4", "--steps", "30", "--set", "model.width=32", "--set", "model.heads=2",
    )  # fmt: skip
    assert "learned" in text and "accuracy" in text and "report: runs/report.html" in text
    page = Path("runs/report.html").read_text()
    assert "language" in page and "accuracy" in page
    runs = sorted(path.parent for path in Path("runs").glob("*/result.json"))
    assert len(runs) == 2
    for run in runs:
        assert json.loads((run / "result.json").read_text())["metrics"] == {"accuracy": 100.0}
        trained = ls.load(run)
        assert trained.task.score(trained.outputs()) == {"accuracy": 100.0}
        assert (run / "looks.json").is_file()
    # Of new input it says nothing, for nobody told it how.
    with pytest.raises(ValueError, match="Language, which predicts nothing of new input"):
        trained.predict([{"text": "the cat"}])


def test_new_input_from_another_folder(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file of the task where it was, and without the data."""
    found = re.search(r'^```python title="reading.py"\n(.*?)^```$', PAGE.read_text(), re.M | re.S)
    assert found is not None
    Path("reading.py").write_text(found[1])
    config = RunConfig(
        task={"name": "reading.py:ReadingLanguage", "data": "lines.tsv"},
        model={"width": 8, "layers": 1, "heads": 1},
        stages=(Stage(steps=1, batch=4),),
        output="runs/reading",
    )
    train(config)
    Path("lines.tsv").unlink()
    run = Path("runs/reading").resolve()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    trained = ls.load(run)
    assert trained.predict([{"text": "the cat"}])[0] in ("de", "en")
    with pytest.raises(ValueError, match="'text' is empty"):
        trained.predict([{"text": ""}])
    with pytest.raises(FileNotFoundError, match=r"is not where it was: .*lines\.tsv"):
        trained.task  # noqa: B018
    (run.parent.parent / "reading.py").rename("reading.txt")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*reading\.py"):
        ls.load(run).predict([{"text": "the cat"}])
