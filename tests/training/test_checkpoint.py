"""A run that is ended at any moment, and goes on, ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.training import NotFiniteError, checkpoint, load, loop, train
from longspan.training.saving import read

from . import killed
from .tiny import LEARNED, Tiny, config_for, metrics_of, stage

pytest.importorskip("accelerate")

# What the clock says is another every time.
MEASURED = ("seconds", "tokens_per_second", "peak_memory")


def lines(run: Path) -> list[dict[str, Any]]:
    return [{key: own[key] for key in own if key not in MEASURED} for own in metrics_of(run)]


def same(run: Path, other: Path) -> None:
    assert lines(run) == lines(other)
    for name in ("first", "second"):
        mine, theirs = (read(own / "stages" / name) for own in (run, other))
        assert mine[0] == theirs[0]
        assert mine[1].keys() == theirs[1].keys()
        for key, own in mine[1].items():
            assert torch.equal(own, theirs[1][key]), key
    for name in ("predictions.json", "looks.json"):
        assert (run / name).read_bytes() == (other / name).read_bytes()


NEVER = 10**9

# Where and when a run is killed, perhaps more than once.
KILLED: dict[str, list[tuple[str, int]]] = {
    "before there is a checkpoint": [("step", 1)],
    "at some step": [("step", random.Random(1).randint(2, 12))],
    "after lines that the checkpoint has not seen": [("line", 3)],
    "with half a checkpoint": [("half", 3)],
    "after a rename": [("rename", 5)],
    "after the last step, before its checkpoint": [("line", 10)],
    "twice": [("step", 5), ("step", 4)],
}


def name_of(case: str) -> str:
    return case.replace(" ", "-").replace(",", "")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    """A folder with a run that nobody interrupted, `whole`, and with one for each case; and how the
    processes of each case ended.
    """
    folder = tmp_path_factory.mktemp("runs")
    asked = [(folder / "whole", "step", NEVER)]
    for case, ends in KILLED.items():
        asked += [(folder / name_of(case), *end) for end in (*ends, ("step", NEVER))]
    asked.append((folder / "left", "step", 5))
    command = [sys.executable, "-m", "tests.training.killed"]
    command.append(json.dumps([[str(own[0]), *own[1:]] for own in asked]))
    found = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    codes: dict[str, list[int]] = {}
    for (path, *_), code in zip(asked, json.loads(found.stdout.splitlines()[-1]), strict=True):
        codes.setdefault(path.name, []).append(code)
    return folder, codes


@pytest.fixture
def whole(runs: tuple[Path, dict[str, list[int]]]) -> Path:
    return runs[0] / "whole"


def test_the_run_itself(whole: Path) -> None:
    found = lines(whole)
    assert [own["step"] for own in found if own["kind"] == "train"] == [2, 4, 6, 7, 10, 12]
    assert [own["step"] for own in found if own["kind"] == "dev"] == [3, 6, 7, 12]
    assert [own.name for own in (whole / "checkpoints").iterdir()] == ["step-000000012"]
    assert not list(whole.rglob(".*"))
    result = json.loads((whole / "result.json").read_text())
    assert result["steps"] == 12 and result["metric"] == "bits" and result["pairs"] > 0
    assert not [path for path in whole.rglob("*") if path.suffix in (".pt", ".bin", ".pkl")]


@pytest.mark.parametrize("case", KILLED)
def test_killed_and_resumed(runs: tuple[Path, dict[str, list[int]]], case: str) -> None:
    folder, codes = runs
    assert codes[name_of(case)] == [-signal.SIGKILL] * len(KILLED[case]) + [0]
    same(folder / name_of(case), folder / "whole")


def test_a_finished_run_is_not_run_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    before = (folder / "metrics.jsonl").read_bytes()
    config = killed.config(folder)
    assert train(config, resume=True, task=killed.task())["steps"] == 12
    assert (folder / "metrics.jsonl").read_bytes() == before
    with pytest.raises(ValueError, match="has a run already: go on with resume"):
        train(config, task=killed.task())
    (folder / "result.json").unlink()
    with pytest.raises(ValueError, match="has a run with another seed: 0, now 1"):
        train(config.with_set(["seed=1"]), resume=True, task=killed.task())
    changed = killed.task()
    changed.settings["examples"] = 41
    with pytest.raises(ValueError, match="the data of tiny changed since the run began"):
        train(config, resume=True, task=changed)


def test_a_full_disk_loses_nothing(whole: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder, calls = tmp_path / "run", 0
    write = checkpoint.Pair.write

    def full(*args: Any) -> None:
        nonlocal calls
        calls += 1
        write(*args)
        if calls == 4:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Pair, "write", full)
        with pytest.raises(
            OSError,
            match=r"no space is left on the disk for .*step-000000004: what was there is whole",
        ):
            train(killed.config(folder), task=killed.task())
    assert [own.name for own in (folder / "checkpoints").iterdir()] == ["step-000000002"]
    train(killed.config(folder), resume=True, task=killed.task())
    same(folder, whole)


def test_metrics_that_were_cut_by_others(
    runs: tuple[Path, dict[str, list[int]]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs[0] / "left", folder)
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="shorter than it was when the checkpoint was written"):
        train(killed.config(folder), resume=True, task=killed.task())


def test_loading(whole: Path) -> None:
    trained = load(whole, task=killed.task())
    wanted = json.loads((whole / "predictions.json").read_text())
    # As many at once as in training: products of matrices of other sizes have another rounding.
    found = trained.outputs(batch=killed.stages()[-1].batch)
    assert [[*own] for own in found.values()] == [own["output"] for own in wanted]
    assert trained.outputs([3])[3] == pytest.approx(found[3])
    assert not trained.model.training and trained.objective.name == "next"
    with pytest.raises(FileNotFoundError, match="is it the folder of a run"):
        load(whole / "stages")


class Poisoned(Tiny):
    """Tells of every batch that is made to train on."""

    def __init__(self, poison: Any, **options: Any) -> None:
        super().__init__(**options)
        self.poison, self.calls = poison, 0

    def batch(self, numbers: Any, split: str = "train") -> Any:
        if split == "train":
            self.calls += 1
            self.poison(self.calls)
        return super().batch(numbers, split)


@pytest.mark.parametrize(
    ("part", "layer"),
    [
        ("body.blocks.1.mlp", "the output of body.blocks.1.mlp.0"),
        ("head.scores", "the output of head.scores"),
    ],
)
def test_not_finite(part: str, layer: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The last good checkpoint stays, and the message names step and layer."""
    calls = 0
    own = torch.nn.Linear.forward

    def forward(self: Any, x: Any) -> Any:
        poisoned = getattr(self, "marked", False) and calls >= 5
        return own(self, x) * float("nan") if poisoned else own(self, x)

    def poison(count: int) -> None:
        nonlocal calls
        calls = count

    from longspan.training import run

    build = run.build

    def marked(*args: Any) -> Any:
        made = build(*args)
        first = made.get_submodule(part)
        first = first[0] if isinstance(first, torch.nn.Sequential) else first
        first.marked = True
        return made

    monkeypatch.setattr(torch.nn.Linear, "forward", forward)
    monkeypatch.setattr(run, "build", marked)
    config = config_for(tmp_path / "run", stage(save_every=2, steps=9), mechanism=LEARNED)
    with pytest.raises(NotFiniteError, match=r"stage 'train', step 5: the loss is nan") as found:
        train(config, task=Poisoned(poison, objective="classes"))
    assert found.value.layer == layer and found.value.step == 5
    path = checkpoint.latest(tmp_path / "run")
    assert path is not None and path.name == "step-000000004"
    weights = read(path)[1]
    assert all(bool(torch.isfinite(own).all()) for own in weights.values())
    assert not (tmp_path / "run" / "result.json").exists()


def test_long_stages_have_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody said after how many steps, by the clock."""
    made: list[int] = []
    monkeypatch.setattr(loop, "SAVED_AFTER", 0.0)
    save = checkpoint.save

    def noted(*args: Any, **named: Any) -> Any:
        made.append(len(made))
        return save(*args, **named)

    monkeypatch.setattr(checkpoint, "save", noted)
    train(config_for(tmp_path, stage(steps=9, record_every=3)), task=Tiny())
    assert len(made) == 3


@pytest.mark.parametrize("objective", ["next", "classes"])
def test_a_reach_that_is_none(objective: str, tmp_path: Path) -> None:
    """Windows refuse it before there is a loss: the step and the layer are named all the same."""
    config = config_for(tmp_path, stage(learning_rate=1e30, warmup=0), mechanism=LEARNED)
    with pytest.raises(NotFiniteError, match=r"step 2: the loss is nan") as found:
        train(config, task=Tiny(objective=objective))
    assert "the output of body." in found.value.layer and "variance" in found.value.layer


def test_other_mistakes_of_a_step_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Any, scores: Any, batch: Any) -> Any:
        raise ValueError("something else")

    from longspan.training.objectives import Next

    monkeypatch.setattr(Next, "loss_of", wrong)
    with pytest.raises(ValueError, match=r"^something else$"):
        train(config_for(tmp_path, stage(), mechanism=LEARNED), task=Tiny(objective="next"))
