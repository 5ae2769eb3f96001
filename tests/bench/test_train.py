"""The benchmark of the trainer runs; what it finds is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from longspan.bench import train
from longspan.cli import app
from longspan.training.accelerating import accelerator_for
from longspan.training.records import Metrics
from longspan.training.stage import Stage

pytest.importorskip("accelerate")


def test_quick(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["bench", "train", "--quick", "-o", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "the trainer adds" in found.output
    saved = json.loads((tmp_path / "bench.json").read_text())
    bare, trainer = saved["bare"]["median"], saved["trainer"]["median"]
    assert saved["added"] == pytest.approx(100 * (trainer / bare - 1))
    assert saved["sizes"]["threads"] == 1 and saved["machine"]


def test_both_compute_the_same(tmp_path: Path) -> None:
    """Otherwise the one might have more pairs than the other."""
    accelerator = accelerator_for(cpu=True)
    sizes = {"width": 32, "layers": 1, "heads": 4, "length": 64}
    learners = [train._learner(sizes, accelerator.device) for _ in range(2)]
    stage = Stage(steps=3, batch=4, warmup=0, schedule="constant")
    task = train._RandomBytes(64)
    metrics = Metrics(tmp_path / "metrics.jsonl")
    bare = train._bare(task, stage, learners[0], accelerator.device)
    trainer = train._trainer(task, stage, learners[1], accelerator, metrics)
    before = {name: own.clone() for name, own in learners[0].state_dict().items()}
    for steps in (bare, trainer, bare, trainer):
        steps()
    metrics.close()
    theirs = learners[1].state_dict()
    for name, own in learners[0].state_dict().items():
        torch.testing.assert_close(own, theirs[name], atol=1e-5, rtol=1e-5, msg=name)
        assert own.numel() == 1 or not torch.equal(own, before[name]), name


def test_a_wrong_device() -> None:
    found = CliRunner().invoke(app, ["bench", "train", "--device", "tpu"])
    assert found.exit_code == 2 and "cpu or cuda" in found.output
