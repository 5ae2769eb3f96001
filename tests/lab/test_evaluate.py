"""A trained model is measured again, and on other examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longspan as ls
from longspan import tasks
from longspan.cli import app
from longspan.training import RunConfig, Stage, train

from ..small_tasks import TASKS, trained_on

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")


def ran(*arguments: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert found.exit_code == code, found.output
    return " ".join(found.output.split())


@pytest.mark.parametrize("name", TASKS)
def test_every_task(name: str, tmp_path: Path) -> None:
    if name in ("tag", "translate"):
        pytest.importorskip("seqeval")
        pytest.importorskip("sacrebleu")
    run = trained_on(name, tmp_path / name)
    result = json.loads((run / "result.json").read_text())
    trained = ls.load(run)
    found = trained.evaluate()
    assert found["metrics"] == pytest.approx(result["metrics"])
    assert found["examples"] == result["examples"]
    # Its own training file, as another set.
    file = tmp_path / name / TASKS[name][0]
    other = trained.evaluate(file)
    assert other["examples"] >= len(trained.task.train) + len(trained.task.dev)
    assert len(other["predictions"]) >= len(found["predictions"])
    assert trained.evaluate()["metrics"] == found["metrics"]


def test_the_command(tmp_path: Path) -> None:
    run = trained_on("squad", tmp_path / "squad")
    test = tmp_path / "test.jsonl"
    line = {"question": "Who is 1?", "context": "1 is Ulm.", "answer": "Ulm"}
    test.write_text("".join(json.dumps({**line, "id": n}) + "\n" for n in range(3)))
    said = ran(run, "--dev", test, "-o", tmp_path / "out")
    assert "f1 " in said and "questions 3" in said and "3 examples" in said
    saved = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert saved["metrics"]["questions"] == 3 and saved["dev"] == str(test)
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text())) == 3
    assert "there is no file" in ran(run, "--dev", tmp_path / "none.jsonl", code=2)
    (tmp_path / "file").touch()
    assert "is a file, where a folder is needed" in ran(run, "-o", tmp_path / "file", code=2)


def test_other_classes_are_refused(tmp_path: Path) -> None:
    run = trained_on("classify", tmp_path)
    test = tmp_path / "test.tsv"
    test.write_text("text\tlabel\nIt is far\tfar\nIt is here\there\n")
    with (
        pytest.warns(UserWarning, match="nothing to learn from is of class 'here'"),
        pytest.raises(ValueError, match=r"test\.tsv, classify has other labels than the model"),
    ):
        ls.load(run).evaluate(test)


def test_a_task_without_other_examples(tmp_path: Path) -> None:
    config = RunConfig(
        task={"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
        model={"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
        stages=(Stage(steps=1, batch=2),),
        output=str(tmp_path / "run"),
    )
    train(config)
    trained = ls.load(tmp_path / "run")
    assert trained.evaluate()["examples"] == 2
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"recall has no dev=…: it is measured on its own data"):
        trained.evaluate(tmp_path / "file")


def test_a_task_of_another_kind_is_refused(tmp_path: Path) -> None:
    run = trained_on("classify", tmp_path)
    file = tmp_path / "more.tsv"
    file.write_text((tmp_path / "train.tsv").read_text() + "It is an ocean\tnear\n" * 30)
    settings = {"vocabulary": 300, "length": 48, "cache": tmp_path / "cache"}
    with pytest.raises(ValueError, match="task has other tokens than the model was trained with"):
        ls.load(run, task=tasks.make("classify", file, **settings))
    of_questions = tasks.make(
        "squad", vocabulary=500, question_length=200, cache=tmp_path / "cache"
    )
    with pytest.raises(ValueError, match="task is for 'spans', and the model was trained for"):
        ls.load(run, task=of_questions)
    (tokens,) = run.glob("stages/*/tokenizer.json")
    same = tasks.make("classify", file, **settings, tokenizer=tokens)
    assert ls.load(run, task=same).task is same
    file.write_text(file.read_text() + "neither\tneither\n" * 20)
    three = tasks.make("classify", file, **settings, tokenizer=tokens)
    with pytest.raises(ValueError, match="task has 3 classes, and the model 2"):
        ls.load(run, task=three)
