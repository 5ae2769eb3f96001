"""Events say what metrics.jsonl says, and a step that was made twice is there once."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from longspan.training import train
from longspan.training.run import Metrics
from longspan.training.tensorboard import scalars

from .tiny import LEARNED, Tiny, config_for, metrics_of, stage

pytest.importorskip("accelerate")
pytest.importorskip("tensorboard")


def config(folder: Path, **options: Any) -> Any:
    steps = stage(steps=8, save_every=4, evaluate_every=3, record_every=1)
    return config_for(folder, steps, mechanism=LEARNED, tensorboard=True, **options)


def events(run: Path) -> dict[str, list[tuple[int, float]]]:
    """As TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(own.step, own.value) for own in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def wanted(run: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for line in metrics_of(run):
        for name, value in scalars(line):
            # Events have numbers of 32 bits.
            found.setdefault(name, []).append((line["step"], pytest.approx(value, rel=1e-6)))
    return found


def test_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    train(config(tmp_path), task=Tiny())
    found = events(tmp_path)
    assert found == wanted(tmp_path)
    assert [step for step, _ in found["train/loss"]] == list(range(1, 9))
    assert [step for step, _ in found["dev/bits"]] == [3, 6, 8]
    assert {"train/tokens_per_second", "dev/pairs", "reach/layer 1/head 1"} <= found.keys()
    assert {f"reach/layer 0/quantile {own}" for own in ("0", "0.25", "1")} <= found.keys()


def test_steps_made_again_are_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at step 7, it goes on from the checkpoint of step 4."""
    write = Metrics.write

    def ends(self: Metrics, line: dict[str, Any]) -> None:
        if line["step"] == 7:
            raise KeyboardInterrupt
        write(self, line)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Metrics, "write", ends)
        train(config(tmp_path), task=Tiny())
    assert [step for step, _ in events(tmp_path)["train/loss"]] == list(range(1, 7))
    # A setting that changes nothing that is computed: the run goes on with it or without.
    train(config(tmp_path), resume=True, task=Tiny())
    assert events(tmp_path) == wanted(tmp_path)
    assert [step for step, _ in events(tmp_path)["train/loss"]] == list(range(1, 9))


def test_a_run_that_began_without(tmp_path: Path) -> None:
    from dataclasses import replace

    own = config(tmp_path)
    train(replace(own, tensorboard=False), task=Tiny())
    assert not (tmp_path / "tensorboard").exists()
    (tmp_path / "result.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints")
    train(own, resume=True, task=Tiny())
    assert events(tmp_path) == wanted(tmp_path)


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'longspan\[tensorboard\]'"):
        train(config(tmp_path / "run"), task=Tiny())
    assert not (tmp_path / "run").exists()
