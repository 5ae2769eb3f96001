"""The commands, from data to answers, on models that learn next to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longspan.cli import app

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

SMALL = [
    "--set", "stages.*.steps=2", "--set", "stages.*.batch=2", "--set", "model.width=16",
    "--set", "model.layers=1", "--set", "model.heads=2",
]  # fmt: skip


def ran(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, list(arguments))
    text = " ".join(found.output.split())
    assert found.exit_code == code, text
    return text


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A file of one's own, with whatever a model can learn from."""
    path = tmp_path / "train.jsonl"
    lines = [
        {
            "question": f"Where does {name} live?",
            "context": f"It is said that {name} lives in {place}, and has done so for years.",
            "answer": place,
        }
        for name, place in zip(
            ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana", "Ida", "Jon"),
            ("Rome", "Oslo", "Kyiv", "Lima", "Bonn", "Bern", "Cork", "York", "Nice", "Graz"),
            strict=True,
        )
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_compare_makes_a_table_and_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    arguments = [
        "compare", "recall", "--mechanisms", "window,learned", "--seeds", "2", "--reach", "2",
        "--length", "80", *SMALL, "-o", str(folder),
    ]  # fmt: skip
    text = ran(*arguments)
    assert "1 of 4: window, seed 0" in text and "accuracy" in text and "learned" in text
    assert (folder / "report.html").is_file()
    runs = [path.parent for path in folder.glob("*/result.json")]
    assert len(runs) == 4
    # What has a result is not run again.
    before = {run: (run / "result.json").read_bytes() for run in runs}
    again = ran(*arguments)
    assert "1 of 4" not in again
    assert {run: (run / "result.json").read_bytes() for run in runs} == before
    assert "saved" in ran("report", str(folder), "-o", str(tmp_path / "all.html"))
    assert (tmp_path / "all.html").stat().st_size > 1000


def test_recipes_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from longspan.recipes import comparison\n"
        "def recipe(reach=2):\n"
        "    return comparison('recall', ('window',), reach=reach, seeds=1, length=80)\n"
    )
    folder = str(tmp_path / "runs")
    text = ran("run", str(path), *SMALL, "-o", folder)
    assert "report:" in text
    (run,) = (config.parent for config in Path(folder).glob("*/config.json"))
    assert ran("run", str(run), "--dry-run")


def test_a_dry_run_says_what_it_would_take(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    path = tmp_path / "mine.py"
    path.write_text(
        "from longspan.recipes import comparison\n"
        "def recipe(reach=2):\n"
        "    return comparison('squad', ('window', 'learned'), reach=reach, seeds=2, length=48,\n"
        f"        data={str(questions)!r})\n"
    )
    settings = ["--set", "task.settings.vocabulary=300", "--set", "task.settings.stride=12"]
    settings += ["--set", "task.settings.question_length=16", "--option", "reach=3", *SMALL]
    before = {own: own.read_bytes() for own in tmp_path.rglob("*") if own.is_file()}
    text = ran("run", str(path), "--dry-run", "-o", str(tmp_path / "runs"), *settings)
    # Neither runs nor tokens are kept.
    assert {own: own.read_bytes() for own in tmp_path.rglob("*") if own.is_file()} == before
    assert "every run has" in text and "mechanism.mean_reach 3" in text
    assert "stages.first.batch 2" in text
    for row in ("window, seed 0", "window, seed 1", "learned, seed 0", "learned, seed 1"):
        assert row in text
    # Two heads, each with a matrix of 8 × 8 and a vector.
    assert " 144 " in text and "MiB" in text and "all that have no result yet" in text
    # What is there is not counted again.
    ran("run", str(path), "-o", str(tmp_path / "runs"), *settings)
    text = ran("run", str(path), "--dry-run", "-o", str(tmp_path / "runs"), *settings)
    assert text.count("has a result") == 4 and "result yet 0 s" in text


def test_a_run_that_was_stopped_goes_on_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    arguments = [
        "compare", "recall", "--mechanisms", "window", "--seeds", "1", "--length", "80", *SMALL,
        "-o", str(folder),
    ]  # fmt: skip
    ran(*arguments)
    (run,) = (config.parent for config in folder.glob("*/config.json"))
    wanted = json.loads((run / "result.json").read_text())
    for again in (arguments, ["run", str(run)], ["run", "--resume", str(run)]):
        # As it is when a run is stopped before its end.
        (run / "result.json").unlink()
        assert "1 of 1" in ran(*again)
        assert [config.parent for config in folder.glob("*/config.json")] == [run]
        assert json.loads((run / "result.json").read_text())["metrics"] == wanted["metrics"]


def test_a_fresh_run_keeps_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    arguments = [
        "compare", "recall", "--mechanisms", "window", "--seeds", "2", "--length", "80", *SMALL,
        "-o", str(folder),
    ]  # fmt: skip
    ran(*arguments)
    runs = [config.parent for config in folder.glob("*/config.json")]
    before = {run.name: (run / "result.json").read_bytes() for run in runs}
    assert "1 of 2" not in ran(*arguments, "--resume")
    for number in (1, 2):
        said = ran(*arguments, "--fresh")
        assert "moved" in said and "1 of 2" in said and "2 of 2" in said
        assert sorted(folder.glob("*/config.json")) == sorted(run / "config.json" for run in runs)
        for name in before:
            kept = folder / "before" / f"{name}-{number}"
            assert (kept / "metrics.jsonl").is_file() and (kept / "checkpoints").is_dir()
            if number == 1:
                assert (kept / "result.json").read_bytes() == before[name]
    one = runs[0]
    text = ran("run", str(one), "--fresh", "--dry-run")
    assert "has a result" not in text and (one / "result.json").is_file()
    # What is told a run that is there is not passed over.
    assert "another seed" in ran("run", str(one), "--set", "seed=9", code=2)
    assert "--option is of a recipe" in ran("run", str(one), "--option", "steps=3", code=2)
    assert "goes on where it is" in ran("run", str(one), "-o", str(tmp_path / "x"), code=2)
    ran("run", str(one), "--fresh")
    assert (folder / "before" / f"{one.name}-3" / "result.json").is_file()
    assert (one / "result.json").is_file()
    # With records, what they tell is made anew as well.
    records = tmp_path / "records"
    with_records = [*arguments, "--records", str(records)]
    ran(*with_records)
    assert "1 of 2" not in ran(*with_records)
    assert "1 of 2" in ran(*with_records, "--fresh")
    assert len(list(records.glob("*.json"))) == len(list(records.glob("before/*-1.json"))) == 2
    # Nothing to be moved is no mistake.
    assert "moved" not in ran(*arguments, "--fresh", "-o", str(tmp_path / "others"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nothing"], "no recipe 'nothing'"),
        (["run", "quick", "--option", "speed=3"], "no option 'speed'"),
        (["run", "quick", "--set", "model.widht=3", "--dry-run"], "widht"),
        (["compare", "recall", "--mechanisms", "wide"], "among full"),
        (["compare", "nothing", "--steps", "1"], "no task 'nothing'"),
        (["data", "bytes", "--data", "nowhere.txt"], "nowhere.txt"),
        (["data", "bytes", "--option", "length=long"], "length"),
        (["run", "quick", "--set", "task.settings.length=long"], "length"),
        (["run", "quick", "--set", "task.data=nowhere.txt", "--dry-run"], "nowhere.txt"),
        (["run", "quick", "--set", "model.width=7", "--dry-run"], "7"),
        (["report", "."], "no config.json"),
        (["ask", ".", "a.txt", "Why?"], "a.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = ran(*arguments, code=2)
    assert says in text and "Traceback" not in text and text.startswith("Error: ")


def test_data_says_what_is_there(questions: Path) -> None:
    text = ran("data", "squad", "--data", str(questions), "--option", "vocabulary=300")
    assert "spans, measured by f1" in text and "examples to learn from" in text


def test_questions_about_documents(questions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    settings = {"length": 48, "stride": 12, "vocabulary": 300, "question_length": 16}
    config = {
        "task": {"name": "squad", "data": str(questions), "settings": settings},
        "model": {"width": 16, "layers": 1, "heads": 2},
        "mechanism": {"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8},
        "stages": [{"steps": 2, "batch": 2}],
        "output": str(folder),
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    ran("run", str(path), "-o", str(folder))
    (run,) = (found.parent for found in folder.glob("*/result.json"))
    document = tmp_path / "document.txt"
    document.write_text("Ada lives in Rome. " * 20)
    asking = ["ask", str(run), str(document), "Where does Ada live?"]
    plain = ran(*asking)
    assert "characters" in plain and "looked" not in plain
    told = ran(*asking, "--looked")
    assert told.startswith(plain) and "looked most at" in told
    assert "layer 0 head 1" in told and "tokens" in told
    assert "the question is empty" in ran("ask", str(run), str(document), " ", code=2)
    document.write_text(" \n")
    assert f"the text of {document} is empty" in ran(*asking, code=2)
