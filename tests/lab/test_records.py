"""Records of runs, tables of them, and several runs at once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from longspan.lab import records
from longspan.recipes import Planned
from longspan.training import RunConfig, Stage
from longspan.training.folder import TakenError, claimed
from tests.lab.test_commands import SMALL, ran

pytest.importorskip("accelerate")

ARGUMENTS = [
    "compare", "recall", "--mechanisms", "window,learned", "--seeds", "2", "--reach", "2",
    "--length", "80", *SMALL,
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two at once, in `runs`, and their records, in `records`."""
    place = tmp_path_factory.mktemp("made")
    runs, records = str(place / "runs"), str(place / "records")
    text = ran(*ARGUMENTS, "-o", runs, "--records", records, "--jobs", "2")
    assert "4 of 4" in text and "report:" in text
    return place


def test_runs_at_once_are_those_of_one_after_the_other(made: Path, tmp_path: Path) -> None:
    ran(*ARGUMENTS, "-o", str(tmp_path))
    for path in tmp_path.glob("*/result.json"):
        other = made / "runs" / path.parent.name / "result.json"
        results = [json.loads(own.read_text()) for own in (path, other)]
        assert results[0]["metrics"] == results[1]["metrics"]
    assert len(list(tmp_path.glob("*/result.json"))) == 4


def test_runs_with_a_record_are_not_made_again(made: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    shutil.copytree(made / "records", records)
    text = ran(*ARGUMENTS, "-o", str(tmp_path / "runs"), "--records", str(records))
    assert " of 4" not in text and "accuracy" in text and "report:" not in text
    (tmp_path / "plan.py").write_text(
        "from longspan.recipes import comparison\n"
        "def recipe():\n"
        "    names = ('window', 'learned')\n"
        "    return comparison('recall', names, reach=2, length=80, seeds=2)\n"
    )
    told = ran("run", str(tmp_path / "plan.py"), *SMALL, "--dry-run", "--records", str(records))
    assert told.count("has a result") == 4
    # One is lost, and made again.
    lost = sorted(records.glob("*.json"))[0]
    before = json.loads(lost.read_text())
    lost.unlink()
    text = ran(*ARGUMENTS, "-o", str(tmp_path / "runs"), "--records", str(records))
    assert text.count(" of 4: ") == 1 and "report:" in text
    after = json.loads(lost.read_text())
    assert after["result"]["metrics"] == before["result"]["metrics"]
    assert after["config"] == before["config"]


def test_records_are_small_and_have_no_places(made: Path) -> None:
    paths = list((made / "records").glob("*.json"))
    assert len(paths) == 4
    for path in paths:
        text = path.read_text()
        assert len(text) < 10_000 and str(made) not in text
        record = json.loads(text)
        kinds = [line["kind"] for line in record["metrics"]]
        assert "dev" in kinds and "train" in kinds
        if record["row"] == "learned":
            trained = [line for line in record["metrics"] if line["kind"] == "train"]
            assert all(len(line["reach"]) == 1 for line in trained)


def test_names_of_records_follow_files_not_places() -> None:
    from longspan.lab.records import _name
    from longspan.recipes import Planned
    from longspan.training import RunConfig, Stage

    def name(data: object, start: str, seed: int = 0) -> str:
        config = RunConfig(
            task={"name": "squad", "data": data, "settings": {"tokenizer": start}},
            start=start, stages=(Stage(steps=1),), output="a", seed=seed,
        )  # fmt: skip
        return _name(Planned(row="a row", config=config))

    assert name("/here/squad", "/here/mini") == name("there/squad", "mini")
    assert name(["/a/x.json", "/a/y.json"], "m") == name(["/b/x.json", "/b/y.json"], "m")
    assert name("/here/squad", "mini") != name("/here/cuad", "mini")
    assert name("squad", "mini") != name("squad", "mini", seed=1)


def test_processes_are_told_all_of_a_plan() -> None:
    from longspan.lab.jobs import _as_dict, _plan_of
    from longspan.recipes.window_table import window_table

    plan = window_table()
    assert any(one.published is not None for one in plan.runs)
    for own in (plan, plan.of_rows(plan.rows[2:4])):
        assert _plan_of(json.loads(json.dumps(_as_dict(own)))) == own


def test_the_table_of_records(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    text = ran("table", str(made / "records"), "-o", str(path))
    assert "window" in text and "saved" in text
    lines = path.read_text().splitlines()
    assert lines[0].startswith("|  | accuracy | better than the first | reach, asked and actual |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| window", "| learned"]
    # Seconds and tokens a second are the same, since they are from the same runs.
    assert path.read_text() == (made / "runs" / "table.md").read_text()
    # A row of the same name that was made otherwise is another row.
    shutil.copytree(made / "records", tmp_path / "both")
    other = next(own for own in sorted((tmp_path / "both").glob("*.json")) if "window" in own.name)
    record = json.loads(other.read_text())
    record["config"]["stages"][0]["steps"] = 9
    (tmp_path / "both" / "z.json").write_text(json.dumps(record))
    ran("table", str(tmp_path / "both"), "-o", str(path))
    lines = path.read_text().splitlines()
    names = [line.split(" | ")[0] for line in lines[2:]]
    assert names == ["| window", "| window (stages.first.steps 9)", "| learned"]
    assert "has no records" in ran("table", str(tmp_path / "none"), code=2)
    text = ran("table", str(made / "runs"), code=2)
    assert "has no records, as --records leaves them; the table of its runs is table.md" in text
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text("{}")
    assert "is no record" in ran("table", str(tmp_path / "other"), code=2)


def test_pictures_of_records(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    quality, reaches = tmp_path / "quality.svg", tmp_path / "reaches.svg"
    told = ran("table", str(made / "records"), "--quality", str(quality), "--reaches", str(reaches))
    assert "quality.svg" in told and "reaches.svg" in told
    assert "<svg" in quality.read_text() and "<svg" in reaches.read_text()
    only = ran("table", str(made / "records"), "--only", "learned")
    assert "learned" in only and "window" not in only
    assert "window; learned" in ran("table", str(made / "records"), "--only", "wide", code=2)
    left = ran("table", str(made / "records"), "--without", "window")
    assert "learned" in left and "window" not in left
    words = ["--without", "window", "--without", "learned"]
    assert "no row left without" in ran("table", str(made / "records"), *words, code=2)
    told = ran("table", str(made / "records"), "--without", "wide", code=2)
    assert "no row with 'wide' to leave out: window; learned" in told
    arguments = ["table", str(made / "records"), "--only", "window", "--reaches", str(reaches)]
    assert "none of the records has a learned reach" in ran(*arguments, code=2)


def test_rows_of_one_family_are_a_line() -> None:
    from longspan.lab.pictures import _family, _told

    names = ("fixed 64, with global tokens", "fixed 4, with global tokens")
    assert {_family(name) for name in names} == {"fixed, with global tokens"}
    assert _family("4,096: learned") == ": learned" and _family("k = 0.6") == "k ="
    assert _told(names) == ("fixed …, with global tokens", ["64", "4"])
    assert _told(["learned 16, k = 0.6"]) == ("learned 16, k = 0.6", [""])
    assert _told(["learned 16, rate ×1", "learned 16, rate ×100"])[0] == "learned 16, rate ×…"


def test_along_a_line_one_number_differs() -> None:
    from types import SimpleNamespace

    from longspan.lab.pictures import _lines

    rows: list[Any] = [
        SimpleNamespace(row=f"{length} tokens: a window of {reach}")
        for length in (384, 512, 1024)
        for reach in (64, 128)
    ]
    found = [[own.row.split()[0] for own in line] for line in _lines(rows)]
    assert found == [["384", "512", "1024"]] * 2
    assert [len(line) for line in _lines(rows[:2])] == [2]
    alone: list[Any] = [SimpleNamespace(row="fixed")]
    assert [len(line) for line in _lines(alone)] == [1]


def test_one_run_that_fails_is_not_the_end_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from longspan.lab import jobs
    from longspan.recipes import comparison

    plan = comparison("recall", ("window",), seeds=3, length=80)
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / "plan.json"
    path.write_text(json.dumps(jobs._as_dict(plan)))
    made: list[int] = []

    def take_up(plan: Any, planned: Any, *places: Any) -> None:
        if planned.config.seed == 0:
            raise RuntimeError("out of memory")
        made.append(planned.config.seed)

    monkeypatch.setattr(jobs, "take_up", take_up)
    assert jobs.main(path, tmp_path, None, again=False) == 2 and made == [1, 2]
    said = capsys.readouterr().err
    assert "Traceback" in said and said.endswith("RuntimeError: out of memory\n")


def test_a_run_that_another_command_makes_is_looked_at_again(made: Path, tmp_path: Path) -> None:
    """When all else is made, though one of the processes had nothing else to make."""
    first, *others = sorted(path.parent.name for path in made.glob("runs/*/result.json"))
    for name in others[1:]:
        shutil.copytree(made / "runs" / name, tmp_path / name)
    left = tmp_path / others[0] / "result.json"
    command = [sys.executable, "-m", "longspan", *ARGUMENTS, "-o", str(tmp_path), "--jobs", "2"]
    with ExitStack() as held:
        held.enter_context(claimed(tmp_path / first))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not left.exists():
                time.sleep(0.01)
            assert process.poll() is None
            held.close()
            assert process.stdout is not None
            said = process.stdout.read()
    assert process.returncode == 0 and "failed" not in said, said
    assert (tmp_path / first / "result.json").exists()


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    plan = tmp_path / "mine.py"
    plan.write_text(
        "from dataclasses import replace\n"
        "from longspan.recipes import Plan, comparison\n"
        "def recipe():\n"
        "    plan = comparison('recall', ('window',), seeds=2, length=80)\n"
        "    wrong = replace(plan.runs[1].config, seed=7)\n"
        "    return replace(plan, runs=(plan.runs[0], replace(plan.runs[1], config=wrong)))\n"
    )
    # What is there is of another configuration.
    text = ran("run", str(plan), *SMALL, "-o", str(folder), "--jobs", "2")
    assert "2 of 2" in text
    (run,) = folder.glob("*seed7*")
    (run / "result.json").unlink()
    (run / "config.json").write_text("not JSON")
    (other,) = folder.glob("*seed0*")
    (other / "result.json").unlink()
    text = ran("run", str(plan), *SMALL, "-o", str(folder), "--jobs", "2", code=2)
    assert "jobs" in text and ".log" in text and run.name in text
    # Nobody tries it again, and the rest is done.
    logs = [log.read_text() for log in (folder / "jobs").glob("*.log")]
    assert sum(run.name in text for text in logs) == 1
    assert (other / "result.json").exists()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(end: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longspan", *ARGUMENTS, "--set", "stages.*.steps=1000000"]
    command += ["-o", str(tmp_path), "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(600):
            # Both have written down what they make.
            if len(list(tmp_path.glob("*/config.json"))) == 2:
                break
            time.sleep(0.1)
        assert len(list(tmp_path.glob(".*.claim"))) == 2
        process.send_signal(end)
    codes = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 130, signal.SIGKILL: -end}
    assert process.returncode == codes[end]
    runs = [path.parent for path in tmp_path.glob("*/config.json")]
    assert len(runs) == 2
    with ExitStack() as held:
        for run in runs:
            for _ in range(100):
                # Those that nobody could end hear of it.
                with suppress(TakenError):
                    held.enter_context(claimed(run))
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"{run} is still being made")


def test_other_data_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    for name, text in (("a", "one text, "), ("b", "another, ")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text(text * 200)

    def compare(name: str, code: int = 0) -> str:
        return ran(
            "compare", "bytes", "--data", str(tmp_path / name / "text.txt"), "--length", "64",
            "--mechanisms", "window", "--seeds", "1", *SMALL, "-o", str(tmp_path / f"runs-{name}"),
            "--records", str(tmp_path / "records"), code=code,
        )  # fmt: skip

    compare("a")
    assert "1 of 1" not in compare("a")
    assert "is of another text.txt" in compare("b", code=2)
    # Elsewhere it is the same file.
    (tmp_path / "b" / "text.txt").write_bytes((tmp_path / "a" / "text.txt").read_bytes())
    assert "1 of 1" not in compare("b")


def test_other_data_in_a_folder_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """Whatever files a task reads there; and the tokenizer of a folder."""
    line = '{"question": "Who is %d?", "context": "%d is %s.", "answer": "%s"}\n'
    for place, answer in (("a", "Ada"), ("b", "Ben")):
        folder = tmp_path / place / "questions"
        folder.mkdir(parents=True)
        for split, say in (("train", "Ada"), ("dev", answer)):
            text = "".join(line % (n, n, say, say) for n in range(12))
            (folder / f"{split}.jsonl").write_text(text)
        (folder / "notes.txt").write_text(place)

    def compare(name: str, tokenizer: str = "a", code: int = 0) -> str:
        return ran(
            "compare", "squad", "--data", str(tmp_path / name / "questions"), "--length", "48",
            "--mechanisms", "window", "--seeds", "1", *SMALL, "-o", str(tmp_path / f"runs-{name}"),
            "--set", "task.settings.question_length=12", "--set", "task.settings.stride=12",
            "--set", f"task.settings.tokenizer={tmp_path / tokenizer / 'tokenizer'}",
            "--records", str(tmp_path / "records"), code=code,
        )  # fmt: skip

    from longspan import tasks

    for place, vocabulary in (("a", 300), ("b", 261)):
        made = tasks.make("squad", tmp_path / "a" / "questions", vocabulary=vocabulary)
        (tmp_path / place / "tokenizer").mkdir()
        made.save(tmp_path / place / "tokenizer")
    compare("a")
    (record,) = (tmp_path / "records").glob("*.json")
    assert set(json.loads(record.read_text())["data"]) == {"questions/", "tokenizer"}
    assert "1 of 1" not in compare("a")
    assert "is of another questions/" in compare("b", code=2)
    assert "is of another tokenizer" in compare("a", "b", code=2)
    # A file that no task reads is no data.
    (tmp_path / "b" / "questions" / "dev.jsonl").write_bytes(
        (tmp_path / "a" / "questions" / "dev.jsonl").read_bytes()
    )
    assert "1 of 1" not in compare("b")


def test_files_of_one_name_are_all_told() -> None:
    from longspan.lab.records import data_of

    def told(*contents: str) -> dict[str, str]:
        files = [{"path": f"{n}/train.json", "sha256": own} for n, own in enumerate(contents)]
        return data_of([{"name": "squad", "data": None, "settings": {}, "files": files}])

    assert told("1") == {"train.json": "1"}
    assert told("1", "2").keys() == {"train.json"} and told("1", "2") != told("3", "2")


def test_reaches_that_other_runs_have_learned_are_told_apart(tmp_path: Path) -> None:
    for name, weights in (("a", b"one"), ("b", b"another")):
        stage = tmp_path / name / "stages" / "soft"
        stage.mkdir(parents=True)
        (stage / "model.json").write_text("{}")
        (stage / "model.safetensors").write_bytes(weights)
    found = []
    for name in ("a", "b"):
        source = str(tmp_path / name / "stages" / "soft")
        config = RunConfig(
            task={"name": "recall"}, stages=(Stage(steps=1, reach_from=source),), output="runs",
            mechanism={"kind": "LearnedWindow"},
        )  # fmt: skip
        found.append(Planned(row="row", config=config))
    record = records.path_of(tmp_path / "records", found[0])
    assert record == records.path_of(tmp_path / "records", found[1])
    record.parent.mkdir()
    own = {"row": "row", "order": 0, "config": {}, "result": {}, "metrics": []}
    data = records._reach_sources(found[0].config)
    record.write_text(json.dumps({**own, "data": data}))
    records.check_record(record.parent, found[0], [])
    with pytest.raises(ValueError, match="is of another reach_from than the one here"):
        records.check_record(record.parent, found[1], [])
