"""Folders of runs: of the same data, made by one process at a time, and with a table of all that is
there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .test_commands import SMALL, ran

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

RECALL = ["compare", "recall", "--reach", "2", "--length", "80", *SMALL]

# A plan of three rows, of which one has a learning rate that nothing survives.
BROKEN = """
from dataclasses import replace
from longspan.recipes import Plan, comparison
def recipe():
    plan = comparison('recall', ('full', 'window', 'learned'), seeds=2, length=80, soft=0)
    def broken(run):
        stages = tuple(replace(own, learning_rate=1e30, warmup=0) for own in run.config.stages)
        return replace(run, config=replace(run.config, stages=stages))
    return replace(plan, runs=tuple(broken(r) if r.row == 'window' else r for r in plan.runs))
"""

# A task that ends the process that trains on its data, if that says so.
DEADLY = """
import os, signal
from longspan.tasks import Recall
class Deadly(Recall):
    name = "deadly"
    def __init__(self, data=None, *, ends=False, length=80, cache=None):
        super().__init__(length=length)
        self.ends, self.settings = ends, {"ends": ends, "length": length}
    def batch(self, numbers, split="train"):
        if self.ends:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(numbers, split)
"""
DEADLY_PLAN = """
from dataclasses import replace
from longspan.recipes import Plan, comparison
def recipe():
    plan = comparison('deadly.py:Deadly', ('full', 'window'), seeds=1, soft=0)
    first, last = plan.runs
    task = {**last.config.task, 'settings': {'ends': True}}
    return replace(plan, runs=(first, replace(last, config=replace(last.config, task=task))))
"""


def rows_of(table: Path) -> list[str]:
    lines = [line.split(" | ")[0][2:] for line in table.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("--")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def training(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process with the same command, which has begun and will not end by itself."""
    folder = Path(arguments[arguments.index("-o") + 1])
    command = [sys.executable, "-m", "longspan", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                if any(folder.glob("*/metrics.jsonl")):
                    break
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("stopped", [False, True])
def test_other_data_is_noticed(stopped: bool, tmp_path: Path) -> None:
    data, folder = tmp_path / "text.txt", tmp_path / "runs"
    data.write_text("one text, " * 200)
    arguments = [
        "compare", "bytes", "--data", str(data), "--length", "64", "--mechanisms", "window",
        "--seeds", "2", *SMALL, "-o", str(folder),
    ]  # fmt: skip
    ran(*arguments)
    if stopped:
        for path in folder.glob("*/result.json"):
            path.unlink()
    before, was = contents(folder), data.read_bytes()
    data.write_text("another, " * 200)
    for more in ([], ["--jobs", "2"]):
        text = ran(*arguments, *more, code=2)
        assert text.startswith("Error: ") and text.count("Error: ") == 1
        assert f"the data of bytes changed since the run began: {data} is another" in text
        assert "--fresh" in text and contents(folder) == before
    # As it was, and anew.
    data.write_bytes(was)
    assert ("1 of 2" in ran(*arguments)) == stopped
    data.write_text("another, " * 200)
    assert "2 of 2" in ran(*arguments, "--fresh")
    assert "2 of 2" not in ran(*arguments)


def test_another_file_in_a_folder_of_data_is_noticed(tmp_path: Path) -> None:
    data, folder = tmp_path / "texts", str(tmp_path / "runs")
    for name in ("good", "bad"):
        (data / name).mkdir(parents=True)
        for number in range(6):
            (data / name / f"{number}.txt").write_text(f"this is {name}, {number} times")
    arguments = [
        "compare", "classify", "--data", str(data), "--length", "32", "--mechanisms", "window",
        "--seeds", "1", "--set", "task.settings.vocabulary=300", *SMALL, "-o", folder,
    ]  # fmt: skip
    ran(*arguments)
    assert "1 of 1" not in ran(*arguments)
    (data / "good" / "new.txt").write_text("this is better")
    assert "good/new.txt is read now, and was not" in ran(*arguments, code=2)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_fails_is_not_the_end_of_the_others(jobs: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    folder = tmp_path / "runs"
    arguments = ["run", str(tmp_path / "mine.py"), *SMALL, "-o", str(folder), "--jobs", jobs]
    text = ran(*arguments, "--set", "stages.*.steps=4", code=2)
    # A line for each, with its cause; and a table and a report of what there is.
    for seed in (0, 1):
        assert f"failed: window, seed {seed}: stage 'last', step " in text
    assert "the loss is" in text and "Traceback" not in text
    assert text.count("Error: ") == 1 and "Error: 2 of 6 runs failed" in text
    assert rows_of(folder / "table.md") == ["full", "learned"]
    assert len(list(folder.glob("*/result.json"))) == 4 and (folder / "report.html").is_file()
    assert "accuracy" in text and "report:" in text
    if jobs == "2":
        assert "jobs/" in text and ".log" in text


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_with_another_run_is_not_the_end_of_the_others(jobs: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    arguments = [*RECALL, "--seeds", "1", "-o", str(folder), "--jobs", jobs, "--mechanisms"]
    ran(*arguments, "window")
    (run,) = folder.glob("window-*")
    other = json.loads((run / "config.json").read_text()) | {"compiled": True}
    (run / "config.json").write_text(json.dumps(other))
    text = ran(*arguments, "window,learned", code=2)
    assert f"Error: window, seed 0: {run} has a run with another compiled: True, now False" in text
    assert rows_of(folder / "table.md") == ["learned"]


def test_a_process_that_is_killed_is_not_the_end_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deadly.py").write_text(DEADLY)
    Path("mine.py").write_text(DEADLY_PLAN)
    text = ran("run", "mine.py", *SMALL, "-o", "runs", "--jobs", "2", code=2)
    assert "Error: window, seed 0: its process ended by signal 9 (runs/window-seed0" in text
    assert rows_of(Path("runs/table.md")) == ["full"]


def test_processes_that_cannot_even_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from longspan.lab import jobs

    def broken(command: list[str], log: Path, count: int) -> subprocess.Popen[bytes]:
        return started([command[0], "-c", "raise ImportError('no such thing')"], log, count)

    started = jobs._started
    monkeypatch.setattr(jobs, "_started", broken)
    arguments = [*RECALL, "--mechanisms", "window", "--seeds", "2", "-o", str(tmp_path)]
    text = ran(*arguments, "--jobs", "2", code=2)
    assert (
        "failed: window, seed 1: no process was left to make it: one ended with exit code 1, "
        in text
    )
    assert "ImportError: no such thing" in text and f"jobs/{os.getpid()}-0.log" in text


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    steps = ["--set", "stages.*.steps=1000000", "--set", "stages.*.save_every=1"]
    arguments = [*RECALL, "--mechanisms", "window", "--seeds", "1", *steps, "-o", str(folder)]
    with training(*arguments) as other:
        assert other.poll() is None
        said = f"is being made by another process ({other.pid} on"
        for more in ([], ["--fresh"], ["--jobs", "2"]):
            text = ran(*arguments, *more, code=2)
            assert said in text and text.count("Error: ") == 1
        assert not (folder / "before").exists()
        (run,) = (path.parent for path in folder.glob("*/config.json"))
        assert said in ran("run", str(run), code=2)
        # It was killed, and nothing keeps the next from going on.
        other.send_signal(signal.SIGKILL)
        other.wait()
    with training(*arguments) as other:
        time.sleep(1)
        assert other.poll() is None
    # It has its row, though it has not ended.
    (note,) = json.loads((run / "row.json").read_text())
    assert (note["title"], note["row"]) == ("Mechanisms on recall", "window")


def test_two_processes_share_a_plan(tmp_path: Path) -> None:
    """What one makes is left to it, and the rest is made by the other."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from longspan.recipes import comparison\n"
        "def recipe():\n"
        "    plan = comparison('recall', ('full', 'window'), seeds=1, length=80, soft=0)\n"
        "    first, last = plan.with_set(['stages.*.steps=2', 'model.width=16']).runs\n"
        "    (stage,) = first.config.stages\n"
        "    long = replace(first.config, stages=(replace(stage, steps=1000000),))\n"
        "    return replace(plan, runs=(replace(first, config=long), last))\n"
    )
    folder = tmp_path / "runs"
    arguments = ["run", str(path), "-o", str(folder)]
    with training(*arguments) as other:
        text = ran(*arguments, code=2)
        assert other.poll() is None
    assert f"Error: full, seed 0: {folder}" in text and "another process" in text
    assert rows_of(folder / "table.md") == ["window"]


def test_a_table_has_what_is_in_the_folder(tmp_path: Path) -> None:
    folder, path = tmp_path / "runs", tmp_path / "mine.py"
    path.write_text(
        "from longspan.recipes import comparison\n"
        "def recipe(mechanisms: list[str] = ['full', 'window', 'learned'], reach: int = 2):\n"
        "    return comparison('recall', mechanisms, seeds=1, length=80, reach=reach, soft=0)\n"
    )
    run = ["run", str(path), *SMALL, "-o", str(folder)]
    table = folder / "table.md"
    ran(*run, "--row", "learned")
    assert rows_of(table) == ["learned"]
    # Rows lie in the table's order, whichever came first; a row that is asked for twice is one.
    text = ran(*run, "--row", "window", "--row", "window")
    assert rows_of(table) == ["window", "learned"] and "learned" in text
    ran(*run)
    assert rows_of(table) == ["full", "window", "learned"]
    whole = table.read_text()
    # A call for fewer rows loses none, nor does one for a run that is there.
    ran(*run, "--option", 'mechanisms=["full"]')
    assert sorted(rows_of(table)) == ["full", "learned", "window"]
    ran(*run)
    assert table.read_text() == whole
    (one,) = folder.glob("window-*")
    ran("run", str(one))
    assert table.read_text() == whole
    page = (folder / "report.html").read_text()
    assert all(found.name in page for found in folder.glob("*-seed0-*"))
    # Other settings are other rows, which say in what; the call's own keep their names.
    ran(*run, "--option", "reach=3", "--row", "window")
    assert rows_of(table) == ["full", "window", "window (mechanism.left 2)", "learned"]
    ran(*run, "--set", "stages.*.batch=3", "--row", "window")
    assert rows_of(table) == [
        "full",
        "window",
        "window (stages.last.batch 2, mechanism.left 3)",
        "window (stages.last.batch 2)",
        "learned",
    ]


def test_a_folder_of_runs_is_none(tmp_path: Path) -> None:
    ran(*RECALL, "--mechanisms", "window", "--seeds", "1", "-o", str(tmp_path))
    text = ran("run", str(tmp_path), code=2)
    assert f"{tmp_path} is a folder of runs: name one of them, such as {tmp_path}/window-" in text


def test_other_seeds_join_their_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from longspan.recipes import Plan, comparison, over_seeds\n"
        "def recipe(seeds: list[int]):\n"
        "    one = comparison('recall', ('window',), seeds=1, length=80).runs[0]\n"
        "    return Plan(title='t', about='', runs=tuple(over_seeds('w', one.config, seeds)))\n"
    )
    run = ["run", str(path), *SMALL, "-o", str(tmp_path / "runs")]
    ran(*run, "--option", "seeds=[0]")
    assert "±" not in (tmp_path / "runs" / "table.md").read_text()
    text = ran(*run, "--option", "seeds=[1]")
    assert "1 of 1" in text and "±" in text
    assert rows_of(tmp_path / "runs" / "table.md") == ["w"]
    assert "mine.py needs --option seeds=…, a list of whole numbers" in ran(*run, code=2)


def test_tables_of_several_plans_lie_in_one_file(tmp_path: Path) -> None:
    folder, data = tmp_path / "runs", tmp_path / "text.txt"
    data.write_text("one text, " * 200)
    more = ["--mechanisms", "window", "--seeds", "1", *SMALL, "-o", str(folder)]
    ran("compare", "recall", "--length", "80", *more)
    text = ran("compare", "bytes", "--data", str(data), "--length", "64", *more)
    assert "accuracy" not in text and "bits" in text
    lines = (folder / "table.md").read_text().splitlines()
    titles = [line for line in lines if line.startswith("**")]
    assert titles == ["**Mechanisms on bytes**", "**Mechanisms on recall**"]
    assert len([line for line in lines if line.startswith("| window |")]) == 2
    # What nobody can read is left out, and a report names it.
    (run,) = (path.parent for path in folder.glob("*/row.json") if "recall" in path.read_text())
    (run / "result.json").write_text("{")
    ran("compare", "bytes", "--data", str(data), "--length", "64", *more)
    assert rows_of(folder / "table.md") == ["window"]
    assert "result.json cannot be read" in (folder / "report.html").read_text()


def test_runs_from_before_rows_were_noted(tmp_path: Path) -> None:
    """They are noted by the next call that has them."""
    folder = tmp_path / "runs"
    arguments = [*RECALL, "--seeds", "1", "-o", str(folder), "--mechanisms"]
    ran(*arguments, "window,learned")
    for path in folder.glob("*/row.json"):
        path.unlink()
    ran(*arguments, "window,learned")
    ran(*arguments, "full")
    assert rows_of(folder / "table.md") == ["full", "window", "learned"]
    (note,) = json.loads(next(folder.glob("learned-*/row.json")).read_text())
    assert (note["title"], note["row"], note["order"]) == ("Mechanisms on recall", "learned", 1)


def test_a_home_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written: shells leave it as it is behind an equals sign."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    arguments = [*RECALL, "--mechanisms", "window", "--seeds", "1", "--output=~/my runs"]
    assert "1 of 1" in ran(*arguments)
    folder = tmp_path / "home" / "my runs"
    assert (folder / "table.md").is_file() and (folder / "report.html").is_file()
    for more in ([], ["--jobs", "2"]):
        assert "1 of 1" not in ran(*arguments, *more)
    assert "1 of 1" in ran(*arguments, "--fresh") and (folder / "before").is_dir()
    assert [own.name for own in tmp_path.iterdir()] == ["home"]
    text = ran(*RECALL, "--output=~nobody-of-that-name/runs", code=2)
    assert "~nobody-of-that-name/runs is" in text


def test_a_run_that_two_tables_share(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from longspan.recipes import comparison\n"
        "def recipe(title: str, mechanism: str):\n"
        "    plan = comparison('recall', ('full', mechanism), seeds=1, length=80, soft=0)\n"
        "    return replace(plan, title=title)\n"
    )
    run = ["run", str(path), *SMALL, "-o", str(tmp_path / "runs"), "--option"]
    ran(*run, "title=A", "--option", "mechanism=window")
    ran(*run, "title=B", "--option", "mechanism=learned")
    table = tmp_path / "runs" / "table.md"
    assert rows_of(table) == ["B**", "full", "learned", "A**", "full", "window"]


def test_what_is_measured_otherwise_has_another_table(tmp_path: Path) -> None:
    """Of rows of one title."""
    data, path = tmp_path / "text.txt", tmp_path / "mine.py"
    data.write_text("one text, " * 200)
    path.write_text(
        "from dataclasses import replace\n"
        "from longspan.recipes import comparison\n"
        "def recipe(task: str, data: str | None = None):\n"
        "    plan = comparison(task, ('window',), seeds=1, length=80, data=data)\n"
        "    return replace(plan, title='t')\n"
    )
    run = ["run", str(path), *SMALL, "-o", str(tmp_path / "runs"), "--option"]
    ran(*run, "task=bytes", "--option", f"data={data}")
    text = ran(*run, "task=recall")
    assert "accuracy" in text and "bits" not in text
    lines = (tmp_path / "runs" / "table.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("**")] == ["**t**", "**t: bits**"]
    assert ["accuracy" in line for line in lines if line.startswith("|  |")] == [True, False]


def test_where_tokens_are_kept_makes_no_other_row(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("one text, " * 200)
    arguments = [
        "compare", "bytes", "--data", str(data), "--length", "64", "--mechanisms", "window",
        "--seeds", "1", *SMALL, "-o", str(tmp_path / "runs"),
    ]  # fmt: skip
    ran(*arguments)
    ran(*arguments, "--set", f"task.settings.cache={tmp_path / 'cache'}")
    assert rows_of(tmp_path / "runs" / "table.md") == ["window"]


@pytest.mark.parametrize("content", ['{"title": "t"}', "[3]", '[{"title": ["x"]}]', "null"])
def test_notes_that_are_none(content: str, tmp_path: Path) -> None:
    arguments = [*RECALL, "--seeds", "1", "-o", str(tmp_path), "--mechanisms"]
    ran(*arguments, "window")
    (run,) = tmp_path.glob("window-*")
    (run / "row.json").write_text(content)
    ran(*arguments, "full")
    assert rows_of(tmp_path / "table.md") == ["full"]
