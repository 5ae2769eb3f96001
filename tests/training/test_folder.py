"""A run's folder: whose it is, and whether what is there is of the same data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longspan.training import RunConfig, Stage, train
from longspan.training.folder import TakenError, check_data, claimed

pytest.importorskip("accelerate")

HOLDS = """
import sys, time
from pathlib import Path
from longspan.training.folder import claimed
with claimed(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the claim on the folder `run`."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def config(folder: Path, data: Path, **changes: Any) -> RunConfig:
    return RunConfig(
        task={"name": "bytes", "data": str(data), "settings": {"length": 32}},
        model={"width": 8, "layers": 1, "heads": 1},
        stages=(Stage(steps=4, batch=2, save_every=2),),
        output=str(folder),
        **changes,
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("one text, " * 200)
    return path


def test_a_folder_is_one_process_own(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    folder = tmp_path / "run"
    with (
        pytest.raises(TakenError, match=rf"run is being made by another process \({holder.pid} on"),
        claimed(folder),
    ):
        pass
    # Whatever way leads there, and for a run as well.
    (tmp_path / "way").symlink_to(tmp_path)
    with pytest.raises(TakenError), claimed(tmp_path / "way" / "run"):
        pass
    with pytest.raises(TakenError, match="wait until it has ended, or name another folder"):
        train(config(folder, tmp_path / "absent.txt"), resume=True)
    # Another folder is free.
    with claimed(tmp_path / "other"):
        pass
    assert not folder.exists()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_claim_ends_with_its_process(
    end: signal.Signals, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(end)
    holder.wait()
    with claimed(tmp_path / "run"):
        pass
    # Nothing is left of it.
    assert not list(tmp_path.iterdir())


def test_a_claim_within_one_process(tmp_path: Path) -> None:
    with claimed(tmp_path / "run"):
        with pytest.raises(TakenError, match=f"{os.getpid()} on"), claimed(tmp_path / "run"):
            pass
        assert [own.name for own in tmp_path.iterdir()] == [".run.claim"]
    with claimed(tmp_path / "run"):
        pass


def test_one_that_waited_for_a_claim_that_is_gone_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, its owner ends and removes it."""
    import fcntl

    from longspan.training import folder

    lock, calls = fcntl.flock, 0

    def late(file: Any, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (tmp_path / ".run.claim").unlink()
        lock(file, how)

    monkeypatch.setattr(folder.fcntl, "flock", late)
    with claimed(tmp_path / "run"):
        assert calls == 2
        with pytest.raises(TakenError), claimed(tmp_path / "run"):
            pass


def test_where_there_are_no_locks_runs_are_made_all_the_same(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longspan.training import folder

    def none(*_: Any) -> None:
        raise OSError("Function not implemented")

    with monkeypatch.context() as patched:
        patched.setattr(folder.fcntl, "flock", none)
        assert train(config(tmp_path / "a", text))["steps"] == 4
    monkeypatch.setattr(folder, "fcntl", None)
    assert train(config(tmp_path / "b", text))["steps"] == 4


def test_a_run_that_has_ended_notices_other_data(tmp_path: Path, text: Path) -> None:
    own = config(tmp_path / "run", text)
    before = train(own)
    assert train(own, resume=True)["metrics"] == before["metrics"]
    was = text.read_bytes()
    text.write_text("another, " * 200)
    said = rf"run: the data of bytes changed since the run began: .*{text.name} is another; put it"
    with pytest.raises(ValueError, match=said + ".*--fresh"):
        train(own, resume=True)
    text.write_bytes(was)
    assert train(own, resume=True)["metrics"] == before["metrics"]
    # What is gone has not changed: the result is still there.
    text.unlink()
    assert train(own, resume=True)["metrics"] == before["metrics"]


def test_a_run_that_was_stopped_does_not_go_on_with_other_data(tmp_path: Path, text: Path) -> None:
    own = config(tmp_path / "run", text)
    train(own)
    (tmp_path / "run" / "result.json").unlink()
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    text.write_text("another, " * 200)
    with pytest.raises(ValueError, match=r"text\.txt is another; .*--fresh"):
        train(own, resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == lines


def test_what_changed_is_named(tmp_path: Path) -> None:
    def file(name: str, content: str) -> dict[str, Any]:
        return {"path": name, "bytes": 1, "sha256": content}

    def task(*files: dict[str, Any], **settings: Any) -> dict[str, Any]:
        return {"name": "classify", "data": "d", "settings": settings, "files": list(files)}

    def changed(now: dict[str, Any]) -> str:
        with pytest.raises(ValueError) as caught:
            check_data(tmp_path, [now])
        return str(caught.value)

    was = task(file("a", "1"), file("b", "2"), length=8)
    (tmp_path / "config.json").write_text(json.dumps({"described": {"tasks": [was]}}))
    check_data(tmp_path, [was])
    assert "b is another;" in changed(task(file("a", "1"), file("b", "3"), length=8))
    assert "c is read now, and was not;" in changed(
        task(file("a", "1"), file("b", "2"), file("c", "2"), length=8)
    )
    assert "b was read, and is not now;" in changed(task(file("a", "1"), length=8))
    assert "length was 8, and is 9;" in changed(task(file("a", "1"), file("b", "2"), length=9))
    assert "in another order;" in changed(task(file("b", "2"), file("a", "1"), length=8))
    # The same files may lie elsewhere.
    check_data(tmp_path, [task(file("x/a", "1"), file("y/b", "2"), length=8)])
    assert "y/b is another;" in changed(task(file("x/a", "1"), file("y/b", "3"), length=8))
    # What a later version says more of a task is no other data.
    check_data(tmp_path, [was | {"tokens": "4"}])
    # A folder that nobody has described.
    (tmp_path / "config.json").write_text("{}")
    check_data(tmp_path, [was])
    check_data(tmp_path / "none", [was])


def test_a_result_that_is_no_json_is_named(tmp_path: Path, text: Path) -> None:
    own = config(tmp_path / "run", text)
    train(own)
    (tmp_path / "run" / "result.json").write_text('{"metrics": ')
    with pytest.raises(ValueError, match=r"run/result\.json, line 1: not JSON"):
        train(own, resume=True)
    for content, says in (("{}", "is no result of a run"), ("[]", "must hold an object, got list")):
        (tmp_path / "run" / "result.json").write_text(content)
        with pytest.raises(ValueError, match=rf"run/result\.json {says}"):
            train(own, resume=True)


@pytest.mark.parametrize("broken", ["{", None])
def test_a_checkpoint_that_was_changed_is_named(
    broken: str | None, tmp_path: Path, text: Path
) -> None:
    own = config(tmp_path / "run", text)
    train(own)
    (tmp_path / "run" / "result.json").unlink()
    (state,) = (tmp_path / "run" / "checkpoints").glob("*/state.json")
    state.unlink()
    if broken is not None:
        state.write_text(broken)
    with pytest.raises(ValueError, match=r"state\.json is missing or not whole: .*--fresh"):
        train(own, resume=True)
