"""Predictions for files of new input, of every task that has some."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import longspan as ls
from longspan.cli import app
from longspan.lab.predicting import AT_ONCE, part_of, predict
from longspan.tasks.squad_reader import SquadReader
from longspan.training import OBJECTIVES, RunConfig, Stage, train

from ..small_tasks import TASKS, trained_on

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_on("squad", tmp_path_factory.mktemp("squad"))


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return written(tmp_path / "in.jsonl", TASKS["squad"][3])


def written(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def ran(*arguments: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    assert found.exit_code == code, found.output
    text = found.output.strip()
    if code:
        assert text.startswith("Error: ") and "\n" not in text
    return text


@pytest.mark.parametrize("name", TASKS)
def test_every_task_that_predicts(name: str, tmp_path: Path) -> None:
    if name in ("tag", "translate"):
        pytest.importorskip("seqeval")
        pytest.importorskip("sacrebleu")
    run = trained_on(name, tmp_path / name)
    # No data is needed for it.
    (tmp_path / name / TASKS[name][0]).unlink()
    records = TASKS[name][3]
    out = tmp_path / "out.jsonl"
    text = ran(run, written(tmp_path / "in.jsonl", records), "-o", out)
    assert f"{len(records)} predictions in" in text
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == len(records)
    documents = ls.load(run).input_reader.documents
    assert {*documents} <= {"context", "text"}
    for record, line in zip(records, lines, strict=True):
        said = line.pop("prediction")
        assert line == {key: own for key, own in record.items() if key not in documents}
        if name == "squad":
            assert record["context"][said["start"] : said["end"]] == said["text"] != ""
        elif name == "classify":
            assert said in ("far", "near")
        elif name == "tag":
            assert len(said) == len(record["words"]) and {*said} <= {"O", "B-LOC"}
        else:
            assert isinstance(said, str)


def test_where_predictions_go(squad: Path, asked: Path, tmp_path: Path) -> None:
    out = tmp_path / "a folder" / "öut.jsonl"
    text = ran(squad, asked, "-o", out, code=2)
    assert f"there is no folder {out.parent} for öut.jsonl: make it first" in text
    out.parent.mkdir()
    ran(squad, asked, "-o", out)
    assert len(out.read_text().splitlines()) == len(TASKS["squad"][3])
    text = ran(squad, asked, "-o", tmp_path, code=2)
    assert f"{tmp_path} is a folder: name a file for the predictions" in text
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in ran(squad, asked, "-o", tmp_path / "file" / "out", code=2)


def test_classes_are_those_that_the_task_gives(tmp_path: Path) -> None:
    run = trained_on("classify", tmp_path)
    trained = ls.load(run)
    own = trained.task.predictions(trained.outputs(split="train"), "train")
    texts = [line.split("\t")[0] for line in TASKS["classify"][1].splitlines()[1:]]
    learned = [text for n, text in enumerate(texts) if n % 10 != 9]
    said = trained.predict([{"text": text} for text in learned])
    assert said == [each["label"] for each in own] and len(said) == 22


@pytest.mark.parametrize("name", ["tag", "translate", "birthplaces"])
def test_predictions_are_those_of_known_examples(name: str, tmp_path: Path) -> None:
    """What is predicted of a text that was learned from is what evaluation gives for it."""
    run = trained_on(name, tmp_path)
    trained = ls.load(run)
    if name == "birthplaces":
        # Evaluation tells whether an answer is written: so must what is written.
        outputs = trained.outputs(split="train")
        own = trained.task.predictions(outputs, "train")
        said = trained.predict([{"question": each["question"]} for each in own])
        assert [each["right"] for each in own] == [
            each["answer"] == given for each, given in zip(own, said, strict=True)
        ]
        return
    own = trained.task.predictions(trained.outputs(split="train", batch=4), "train")
    field, given = ("words", "tags") if name == "tag" else ("source", "translation")
    assert trained.predict([{field: each[field]} for each in own]) == [each[given] for each in own]


def test_going_on_from_anywhere(squad: Path, asked: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert "before" not in ran(squad, asked, "-o", out)
    whole = out.read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 20
    part = part_of(ls.load(squad), asked, out)
    cuts = {0: 0, 5: 0, ends[0] + 1: 0, ends[7]: 0, ends[7] + 1: 8, ends[9] + 40: 8, ends[16]: 16}
    for cut, kept in cuts.items():
        out.unlink()
        part.write_bytes(whole[:cut])
        text = ran(squad, asked, "-o", out)
        assert (f"{kept} of them there before" in text) == (kept > 0), text
        assert out.read_bytes() == whole and not part.exists()


def test_killed_in_the_middle(squad: Path, asked: Path, tmp_path: Path) -> None:
    records = TASKS["squad"][3] * 20
    written(asked, records)
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    part = part_of(ls.load(squad), asked, one)
    command = [sys.executable, "-m", "longspan", "predict", str(squad), str(asked), "-o", str(one)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert part.exists() and not one.exists()
    assert "of them there before" in ran(squad, asked, "-o", one)
    ran(squad, asked, "-o", other)
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_text().splitlines()) == len(records)


def test_what_another_model_said_is_not_gone_on_with(
    squad: Path, asked: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    ran(squad, asked, "-o", out)
    trained, first = ls.load(squad), part_of(ls.load(squad), asked, out)
    with torch.no_grad():
        next(trained.model.parameters())[0, 0] += 1
    assert part_of(trained, asked, out) != first
    first.write_bytes(out.read_bytes()[:2000])
    # Neither is what was said of other records.
    records = [{**own, "context": f"Once. {own['context']}"} for own in TASKS["squad"][3]]
    assert "before" not in ran(squad, written(asked, records), "-o", out)
    for record, line in zip(records, out.read_text().splitlines(), strict=True):
        said = json.loads(line)["prediction"]
        assert record["context"][said["start"] : said["end"]] == said["text"]


def test_progress_is_told(squad: Path, asked: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    predict(ls.load(squad), asked, tmp_path / "out", done=lambda *own: told.append(own))
    assert told == [(0, 20), (AT_ONCE, 20), (2 * AT_ONCE, 20), (20, 20)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{'question': 1}", "line 3: not JSON"),
        ('["a", "b"]', "line 3: must be a JSON object, got list"),
        ('{"question": "Why?"}', "line 3: no field 'context'; there are 'question'"),
        ('{"question": "Why?", "context": 7}', "line 3: 'context' must be a text, got int"),
        ('{"question": "\\ud800", "context": "a"}', "line 3: "),
    ],
    ids=["no JSON", "no object", "no field", "no text", "no character"],
)
def test_lines_that_are_wrong(
    squad: Path, asked: Path, tmp_path: Path, line: str, says: str
) -> None:
    out = tmp_path / "out.jsonl"
    good = asked.read_text().splitlines(keepends=True)
    ran(squad, asked, "-o", out)
    whole = out.read_bytes()
    asked.write_text("".join([*good[:2], line + "\n", *good[3:]]))
    assert says in ran(squad, asked, "-o", out, code=2)
    # Nothing is lost, and nothing begun.
    assert out.read_bytes() == whole
    assert sorted(own.name for own in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_files_that_are_wrong(squad: Path, asked: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "empty.jsonl is empty" in ran(squad, empty, "-o", out, code=2)
    assert "no file" in ran(squad, tmp_path / "none.jsonl", "-o", out, code=2)
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"question": "a", "context": "b"}\n{"question": "\xe9"}\n')
    assert "line 2: byte 0xe9 is not UTF-8" in ran(squad, latin, "-o", out, code=2)
    assert not out.exists()
    assert "in.jsonl is what is read" in ran(squad, asked, "-o", asked, code=2)
    assert "nowhere" in ran(squad, asked, "-o", tmp_path / "nowhere" / "out.jsonl", code=2)


def test_tables_are_read_too(squad: Path, tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text('id,question,context\n7,Who is 1?,"1, they say, is Ada."\n')
    ran(squad, table, "-o", tmp_path / "out.jsonl")
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] == "7" and "context" not in json.loads(line)


@pytest.mark.parametrize(
    ("name", "record", "says"),
    [
        ("tag", {"words": []}, "at least one word"),
        ("tag", {"words": ["a", " "]}, "none that is empty"),
        ("tag", {"words": ["a", 3]}, "'words' must be a text, got list"),
        ("tag", {"text": "a b"}, "no field 'words'"),
        ("birthplaces", {"question": "Where was Ω born?"}, "has 'Ω', which no text"),
        ("birthplaces", {"question": "o" * 47}, "at most 46 characters, got 47"),
        ("classify", {"label": "far"}, "no field 'text'"),
        ("translate", {"text": "Hallo"}, "no field 'source'"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value)[:20],
)
def test_records_that_a_task_cannot_read(
    name: str, record: dict[str, Any], says: str, tmp_path: Path
) -> None:
    run = trained_on(name, tmp_path)
    with pytest.raises(ValueError, match=says):
        ls.load(run).predict([record])
    out = tmp_path / "out.jsonl"
    path = written(tmp_path / "in.jsonl", [TASKS[name][3][0], record])
    text = ran(run, path, "-o", out, code=2)
    assert "in.jsonl, line 2: " in text and says in text
    assert not out.exists()


def test_words_may_be_a_text(tmp_path: Path) -> None:
    trained = ls.load(trained_on("tag", tmp_path))
    assert trained.predict([{"words": "In Rome he slept"}]) == trained.predict(
        [{"words": ["In", "Rome", "he", "slept"]}]
    )


def test_tasks_without_predictions_say_so(tmp_path: Path, asked: Path) -> None:
    config = RunConfig(
        task={"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
        model={"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
        stages=[Stage(steps=1, batch=2)],
        output=str(tmp_path / "run"),
    )
    train(config)
    text = ran(tmp_path / "run", asked, "-o", tmp_path / "out.jsonl", code=2)
    assert "trained for recall, which predicts nothing of new input" in text


def test_asking_where_the_text_does_not_tell(
    squad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "a.txt"
    document.write_text("There is no reason at all.")
    monkeypatch.setattr(SquadReader, "holds", lambda own, found: False)
    for spans, says in (
        ([(0, 0, 3.0), (8, 8, 1.0)], "the likeliest span, which scores 2.00 below that, is"),
        ([(0, 0, 3.0)], "nothing in the document answers this"),
    ):
        monkeypatch.setattr(OBJECTIVES["spans"], "decoded", lambda *_, own=spans: {0: own})
        found = CliRunner().invoke(app, ["ask", str(squad), str(document), "Why?", "--looked"])
        assert found.exit_code == 0, found.output
        assert found.output.startswith("nothing in the document answers this\n")
        assert says in found.output
        assert ("looked most at" in found.output) == (len(spans) == 2)
