"""A model that is split over two processes trains to what one process does with twice the batch,
and leaves the same files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.training import checkpoint, load, train
from longspan.training.accelerating import wrapped
from longspan.training.saving import read

from . import together
from .test_processes import close, started_together
from .tiny import metrics_of

pytest.importorskip("accelerate")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return started_together(tmp_path_factory.mktemp("split"), "split")


def one(folder: Path, case: str, **options: Any) -> Path:
    """The same by one process, with all the examples."""
    train(together.config(folder, case, 12, **options), task=together.task(case))
    return folder


@pytest.mark.parametrize("case", together.CASES)
def test_split_as_one(split: Path, case: str, tmp_path: Path) -> None:
    whole = one(tmp_path / "one", case)
    close(split / case, whole, together.task(case))
    assert json.loads((split / case / "config.json").read_text())["described"]["split"]
    # The files are those of one process: names, shapes, and what is stored once.
    for place in ("stages/train", "checkpoints/step-000000005"):
        mine, theirs = read(split / case / place), read(whole / place)
        assert mine[0] == theirs[0]
        assert {name: own.shape for name, own in mine[1].items()} == {
            name: own.shape for name, own in theirs[1].items()
        }
        path = Path(place) / "optimizer.json"
        if (whole / path).is_file():
            assert (split / case / path).read_bytes() == (whole / path).read_bytes()
    # What the dev examples are answered with, and what is looked at.
    for name in ("predictions.json", "looks.json"):
        mine, theirs = (json.loads((own / name).read_text()) for own in (split / case, whole))
        assert len(mine) == len(theirs)


def test_another_stage(split: Path, tmp_path: Path) -> None:
    whole = one(tmp_path / "one", "learned", **together.OTHER)
    close(split / "other", whole, together.task("learned"))


def test_muon(split: Path, tmp_path: Path) -> None:
    """It turns matrices in bfloat16, whose rounding is what differs."""
    whole = one(tmp_path / "one", "learned", **together.MUON)
    mine, theirs = metrics_of(split / "muon"), metrics_of(whole)
    assert [own["loss"] for own in mine] == pytest.approx([own["loss"] for own in theirs], rel=1e-3)
    # Without a step it would be another.
    assert mine[0]["loss"] > 1.01 * mine[-1]["loss"]


def test_resumed(split: Path) -> None:
    """Stopped after step 3, it goes on from step 2, and ends in the same bits."""
    mine, theirs = (read(split / name / "stages" / "train")[1] for name in ("resumed", "learned"))
    for name, own in mine.items():
        assert torch.equal(own, theirs[name]), name
    states = []
    for name in ("resumed", "learned"):
        path = checkpoint.latest(split / name)
        assert path is not None
        about = checkpoint.OPTIMIZER.describe("test", path)
        states.append(checkpoint.OPTIMIZER.read(path, about))
    assert states[0].keys() == states[1].keys()
    for key, own in states[0].items():
        assert torch.equal(own, states[1][key]), key


def test_a_weight_with_a_gradient_in_one_process(split: Path) -> None:
    found = load(split / "uneven", task=together.task("sliding")).model.state_dict()
    assert all(bool(own.isfinite().all()) for own in found.values() if own.is_floating_point())


def test_where_a_loss_began_to_be_none(split: Path) -> None:
    said = {(split / f"wild-{number}.txt").read_text() for number in (0, 1)}
    assert len(said) == 1 and "It began in" in said.pop()


def test_the_command(tmp_path: Path) -> None:
    """As it is typed; the run is then loaded by one process."""
    settings = {"length": 48, "distance": 8, "dev_examples": 16}
    config = {
        "task": {"name": "recall", "settings": settings},
        "model": {"width": 16, "layers": 2, "heads": 2},
        "mechanism": {"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8},
        "stages": [{"steps": 2, "batch": 4}],
        "output": "runs",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--use_fsdp"]
    launch += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", "0", "-m", "longspan"]
    launch += ["run", str(path), "-o", str(tmp_path / "runs")]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(launch, env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("1 of 1: recall") == 1 and found.stdout.count("report:") == 1
    (run,) = (result.parent for result in (tmp_path / "runs").glob("*/result.json"))
    described = json.loads((run / "config.json").read_text())["described"]
    assert described["processes"] == 2 and described["split"]
    assert len(load(run).outputs()) == 16


def test_weights_on_the_cpu_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(ValueError, match="--fsdp_offload_params"):
        wrapped(None, None)  # type: ignore[arg-type]
