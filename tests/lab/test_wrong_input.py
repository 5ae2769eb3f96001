"""What a user can give wrong, through the commands: one line that says what and where, exit code 2,
and nothing that was there is lost.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from longspan import writing
from longspan.cli import app
from longspan.lab import checking
from longspan.recipes import comparison

from ..small_tasks import TASKS, data_of, trained_on

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

RECALL: dict[str, Any] = {
    "task": {"name": "recall", "settings": {"length": 16, "distance": 4, "dev_examples": 2}},
    "model": {"width": 8, "layers": 1, "heads": 1, "positions": "rotary"},
    "stages": [{"steps": 6, "batch": 2, "save_every": 2}],
    "output": "runs",
}


def fails(*arguments: object) -> str:
    found = CliRunner().invoke(app, [str(own) for own in arguments])
    text = found.output.rstrip("\n")
    assert found.exit_code == 2, (text, found.exception)
    last = text.splitlines()[-1]
    assert last.startswith("Error: ") and text.count("Error: ") == 1 and "Traceback" not in text
    return last


def config_in(folder: Path, **changed: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**RECALL, "output": str(folder / "runs"), **changed}))
    return path


@pytest.mark.parametrize(
    ("task", "name", "content", "says"),
    [
        ("squad", "a.json", '{"questions": []}', "a.json: no 'data' at the top"),
        ("squad", "a.json", '{"data": [', "a.json, line 1: not JSON"),
        ("squad", "a.jsonl", "", "a.jsonl is empty"),
        ("squad", "a.jsonl", '{"question": "Why?"}\n', "a.jsonl, line 1: no field 'context'"),
        ("bytes", "a.txt", "", "a.txt is empty"),
        ("masked", "a.txt", "", "a.txt is empty"),
        ("masked", "a.fa", "", "a.fa is empty"),
        ("birthplaces", "a.tsv", "Who?\tRome\nWhere?\n", "a.tsv, line 2: no TAB"),
        ("birthplaces", "a.tsv", "", "a.tsv is empty"),
        ("translate", "a.tsv", "Hallo\thello\nKatze cat\n", "line 2: no TAB in 'Katze cat'"),
        ("translate", "a.tsv", "", "a.tsv is empty"),
        ("classify", "a.tsv", "text\tlabel\nnice\n", "line 2: 1 columns, where line 1 has 2"),
        ("classify", "a.tsv", "", "a.tsv is empty"),
        ("tag", "a.conll", "Rome B-LOC\nslept\n", "line 2: a word and its tag, got 'slept'"),
        ("tag", "a.conll", "", "a.conll is empty"),
        ("squad", "a.jsonl", b'{"q": "a"}\n{"question": "\xe9"}', "line 2: byte 0xe9 is not"),
        ("classify", "a.tsv", b"text\tlabel\ncaf\xe9\tnice\n", "line 2: byte 0xe9 is not UTF-8"),
        ("tag", "a.conll", b"caf\xe9 O\n", "a.conll, line 1: byte 0xe9 is not UTF-8"),
        ("translate", "a.tsv", b"a\tb\nc\xe9\td\n", "line 2: byte 0xe9 is not UTF-8"),
        ("birthplaces", "a.tsv", b"a\tb\xe9\n", "a.tsv, line 1: byte 0xe9 is not UTF-8"),
        ("masked", "a.txt", b"a\n\nb\xe9\n", "a.txt, line 3: byte 0xe9 is not UTF-8"),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_files(task: str, name: str, content: str | bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert says in fails("data", task, "--data", path)
    config = config_in(tmp_path, task={"name": task, "data": str(path)})
    assert says in fails("run", config, "-o", tmp_path / "runs")
    assert says in fails("compare", task, "--data", path, "-o", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_answers_that_are_elsewhere_are_counted(tmp_path: Path) -> None:
    def question(number: int, start: int) -> dict[str, Any]:
        answer = {"text": "Rome", "answer_start": start}
        return {"id": f"q{number}", "question": "Where?", "answers": [answer]}

    context = "He slept in Rome for years."
    articles = [
        {"paragraphs": [{"context": context, "qas": [question(n, 12 if n else 3)]}]}
        for n in range(4)
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": articles}))
    code = [sys.executable, "-m", "longspan", "data", "squad", "--data", str(path)]
    found = subprocess.run(
        [*code, "--option", "vocabulary=300", "--option", f"cache={tmp_path}"],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "Note: squad: 1 of 4 answers are not where the data says" in found.stderr
    assert "question 'q0'" in found.stderr and "2 examples to learn from" in found.stdout


def test_a_vocabulary_that_does_not_fit(tmp_path: Path) -> None:
    run = trained_on("squad", tmp_path / "squad")
    other = {"name": "squad", "data": str(data_of("squad", tmp_path))}
    other["settings"] = {**TASKS["squad"][2], "vocabulary": 290}  # type: ignore[assignment]
    model = {"width": 16, "layers": 1, "heads": 2}
    window = {"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8}
    config = config_in(tmp_path, task=other, model=model, mechanism=window, start=str(run))
    text = fails("run", config, "-o", tmp_path / "runs")
    assert f"{run} has learned other tokens than those of the task squad" in text
    assert f"task.settings.tokenizer={run / 'stages' / 'train'}" in text
    config = config_in(tmp_path, task=other, model={**model, "vocab": 280}, mechanism=window)
    text = fails("run", config, "-o", tmp_path / "others")
    assert "model.vocab is 280, but the task has 290 tokens" in text
    assert not (tmp_path / "others").exists()


def test_a_checkpoint_of_others_with_fewer_tokens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = transformers.BertConfig(
        vocab_size=100,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
    )
    transformers.BertModel(sizes).save_pretrained(tmp_path / "bert")
    task = {"name": "squad", "data": str(data_of("squad", tmp_path)), "settings": TASKS["squad"][2]}
    config = config_in(tmp_path, task=task, model={}, start=str(tmp_path / "bert"))
    text = fails("run", config, "-o", tmp_path / "runs")
    assert "squad: its tokens are numbered up to 299" in text and "knows 100" in text
    assert "tokenizer=" in text and not (tmp_path / "runs").exists()


def test_a_full_disk_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is when safetensors finds no space: an error of its own, with the system's number."""
    import safetensors
    import safetensors.torch

    save, calls = safetensors.torch.save_file, 0

    def full(tensors: Any, path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            path.write_bytes(b"half of it")
            raise safetensors.SafetensorError(
                "Error while serializing: I/O error: No space left on device (os error 28)"
            )
        save(tensors, path)

    config, runs = config_in(tmp_path), tmp_path / "runs"
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", full)
        text = fails("run", config, "-o", runs)
    assert "no space is left on the disk for" in text and "step-000000004" in text
    (run,) = runs.iterdir()
    assert [own.name for own in (run / "checkpoints").iterdir()] == ["step-000000002"]
    assert not list(run.rglob(".writing-*")) and not (run / "result.json").exists()
    # With space again, it goes on from there to what it would have been.
    assert CliRunner().invoke(app, ["run", str(config), "-o", str(runs)]).exit_code == 0
    whole = tmp_path / "whole"
    assert CliRunner().invoke(app, ["run", str(config), "-o", str(whole)]).exit_code == 0
    one, other = (json.loads(next(f.glob("*/result.json")).read_text()) for f in (runs, whole))
    assert one["metrics"] == other["metrics"] and one["steps"] == 6


@pytest.mark.parametrize("name", ["metrics.jsonl", "looks.json", "config.json"])
def test_a_full_disk_in_records(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    plain, sync = writing._beside, os.fsync

    def some(path: Path) -> Path:
        return full() if path.name == name else plain(path)

    def on_disk(handle: int) -> None:
        for path in tmp_path.rglob(name):
            if os.path.samestat(os.fstat(handle), path.stat()):
                full()
        sync(handle)

    with monkeypatch.context() as patched:
        if name == "metrics.jsonl":
            patched.setattr(os, "fsync", on_disk)
        else:
            patched.setattr(writing, "_beside", some)
        text = fails("run", config_in(tmp_path), "-o", tmp_path / "runs")
    assert f"no space is left on the disk for {tmp_path}" in text and name in text
    assert "go on with the same command" in text
    arguments = ["run", str(config_in(tmp_path)), "-o", str(tmp_path / "runs")]
    assert CliRunner().invoke(app, arguments).exit_code == 0


@pytest.mark.parametrize("what", ["tokenizer", "squad-train"])
def test_a_full_disk_in_the_cache(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longspan.tasks import squad, tokenizing

    path, cache = data_of("squad", tmp_path), tmp_path / "cache"
    arguments = ["data", "squad", "--data", path, "--option", f"cache={cache}"]
    arguments += ["--option", "vocabulary=300"]

    def full(folder: Path, *_: Any) -> None:
        (folder / "half").write_text("half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if what == "tokenizer":
            patched.setattr(tokenizing, "_write", lambda _, folder: full(folder))
        else:
            patched.setattr(squad, "write_tokens", full)
        text = fails(*arguments)
    assert f"no space is left on the disk of {cache} for {what}" in text and "cache=" in text
    left = [own.name for own in cache.iterdir()]
    assert len(left) == (what != "tokenizer") and not any(own.startswith(".") for own in left)
    assert CliRunner().invoke(app, [str(own) for own in arguments]).exit_code == 0


def test_a_model_that_was_cut_short(tmp_path: Path) -> None:
    run = trained_on("squad", tmp_path / "squad")
    (path,) = run.glob("stages/*/model.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    (tmp_path / "a.txt").write_text("Rome")
    text = fails("ask", run, tmp_path / "a.txt", "Where?")
    assert f"{path} is not whole" in text


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("mechanism.mean_reach=far", "mean_reach must be a number, got str 'far'"),
        ("mechanism.soft=3", "soft must be True or False, got int 3"),
        ("mechanism.reach=3", "there is no 'reach'; did you mean"),
        ('mechanism={"kind": "SlidingWindow"}', "mechanism SlidingWindow: left is missing"),
        ('mechanism={"kind": "Attention", "left": 3}', "mechanism Attention: there is no 'left'"),
        ('mechanism={"kind": "Attention", "text": "a"}', "give a pattern, such as"),
        ("mechanism=3", "mechanism must have a kind"),
        ("model.width=wide", "width must be an int, got str 'wide'"),
        ("model=3", "model must be a dict of values by name, got int 3"),
        ("task.settings.length=long", "length must be an int, got str 'long'"),
        ("task.settings.lenght=3", "did you mean length?"),
        ("task.settings=3", "task.settings must be a dict of values by name"),
        ("task.name=[1]", "task.name must be a text"),
        ("stages.*.steps=many", "steps must be an int, got str 'many'"),
        ("stages.*.betas=0.9", "betas must be two numbers, got float 0.9"),
        ("stages.*.windows=[\"a\"]", "windows must be an int"),
        ("stages.*.mechanism=3", "mechanism must be a dict"),
        ('stages.*.task={"nmae": 3}', "did you mean 'name'?"),
        ("stages=3", "stages must be a list, got int 3"),
        ("stages=[3]", "Stage must be a dict"),
        ("seed=first", "seed must be an int"),
        ("start=3", "start must be a text"),
        ("output=3", "the folder of the runs is that of -o"),
    ],
)  # fmt: skip
def test_settings(setting: str, says: str, tmp_path: Path) -> None:
    window = {"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8}
    config = config_in(tmp_path, mechanism=window)
    runs = tmp_path / "runs"
    assert says in fails("run", config, "--set", setting, "-o", runs)
    assert says in fails("run", config, "--set", setting, "--dry-run")
    compare = ["compare", "recall", "--mechanisms", "learned", "--seeds", "1", "--length", "80"]
    text = fails(*compare, "--set", setting, "-o", runs)
    assert says in text or setting.startswith("task.settings.lenght")
    # Nothing was begun.
    assert not runs.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[]", "must hold an object, got list []"),
        (b"\xff\xfe", "line 1: byte 0xff is not UTF-8"),
        (b"", "mine.json is empty"),
        (b'{"task": {"name": "recall"}}', "stages is missing"),
    ],
)
def test_a_config_that_is_none(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    text = fails("run", path)
    assert says in text and ("mine.json" in text or "stages" in says)


def test_places_where_nothing_can_be_written(tmp_path: Path) -> None:
    """They are said before anything is trained."""
    config, file = config_in(tmp_path), tmp_path / "file"
    file.touch()
    for arguments in (["-o", file], ["-o", tmp_path / "runs", "--records", file]):
        for more in ([], ["--jobs", "2"]):
            text = fails("run", config, *arguments, *more)
            assert f"Error: {file} is a file, where a folder is needed" in text
    assert "Not a directory" in fails("run", config, "-o", file / "runs")
    assert not list(tmp_path.glob("runs/*"))


def test_no_row_is_trained_before_all_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from longspan.recipes import Plan, comparison\n"
        "def recipe():\n"
        "    plan = comparison('recall', ('window', 'learned'), seeds=1, length=80)\n"
        "    wrong = {'kind': 'LearnedWindow', 'mean_reach': 'far'}\n"
        "    last = replace(plan.runs[1], config=replace(plan.runs[1].config, mechanism=wrong))\n"
        "    return Plan(title='a', about='', runs=(plan.runs[0], last))\n"
    )
    assert "mean_reach must be a number" in fails("run", path, "-o", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_model_that_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = comparison("recall", ("window",), reach=2, steps=1, batch=2, length=80, seeds=1)

    def build(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")

    monkeypatch.setattr(checking, "build", build)
    with pytest.raises(ValueError, match="window: its model does not fit into the memory"):
        checking.check_plan(plan, None, None)
    monkeypatch.setattr(checking, "build", lambda *_: {}[0])
    with pytest.raises(KeyError):
        checking.check_plan(plan, None, None)
