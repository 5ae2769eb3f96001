"""Two processes train to what one does with twice the batch; so do accumulated batches."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.training import Stage, load, train
from longspan.training.sampler import Sampler

from . import together
from .tiny import LEARNED, SLIDING, Tiny, config_for, metrics_of, stage

pytest.importorskip("accelerate")


def close(run: Path, other: Path, task: Any) -> None:
    """Losses and weights, within the rounding of sums in another order."""
    mine, theirs = metrics_of(run), metrics_of(other)
    assert [own["step"] for own in mine] == [own["step"] for own in theirs]
    for own, wanted in zip(mine, theirs, strict=True):
        assert own["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        assert own.get("tokens") == wanted.get("tokens")
        assert own.get("metrics", {}) == pytest.approx(wanted.get("metrics", {}), rel=1e-5)
    weights = [load(own, task=task).model.state_dict() for own in (run, other)]
    for name, own in weights[0].items():
        torch.testing.assert_close(own, weights[1][name], atol=1e-4, rtol=1e-4, msg=name)


def started_together(folder: Path, how: str) -> Path:
    """Runs of two processes, each with half of a step's examples."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    command = [sys.executable, "-m", "tests.training.together"]
    started = [
        subprocess.Popen(
            [*command, number, port, str(folder), how], stderr=subprocess.PIPE, text=True
        )
        for number in ("0", "1")
    ]
    try:
        for process in started:
            _, said = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        # One that waits for another which has failed would wait for long.
        for process in started:
            process.kill()
            process.communicate()
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return started_together(tmp_path_factory.mktemp("two"), "copied")


@pytest.mark.parametrize("case", together.CASES)
def test_two_processes_as_one(two: Path, case: str, tmp_path: Path) -> None:
    train(together.config(tmp_path / "one", case, 12), task=together.task(case))
    close(two / case, tmp_path / "one", together.task(case))
    state = json.loads(next((two / case / "checkpoints").glob("*/state.json")).read_text())
    assert len(state["random"]) == 2 and state["random"][0] != state["random"][1]
    assert json.loads((two / case / "result.json").read_text())["processes"] == 2


def test_resumed_by_another_number_of_processes(two: Path) -> None:
    (two / "learned" / "result.json").unlink(missing_ok=True)
    config = together.config(two / "learned", "learned", **together.CASES["learned"].each)
    with pytest.raises(ValueError, match="written by 2 processes, and this run has 1"):
        train(config, resume=True, task=together.task("learned"))


@pytest.mark.parametrize("objective", ["next", "spans"])
def test_accumulated_as_one(objective: str, tmp_path: Path) -> None:
    """Batches of uneven numbers of targets: the mean is over all of them."""
    for name, own in (("parts", {"batch": 2, "accumulate": 4}), ("one", {"batch": 8})):
        steps = stage(steps=4, record_every=1, eps=1e-3, **own)
        config = config_for(tmp_path / name, steps, mechanism=SLIDING)
        train(config, task=Tiny(objective=objective))
    close(tmp_path / "parts", tmp_path / "one", Tiny(objective=objective))


@pytest.mark.parametrize("objective", ["next", "spans"])
def test_blocks_computed_again(objective: str, tmp_path: Path) -> None:
    """The same bits, dropout and the running factor of causal windows included."""
    found = []
    for name, again in (("again", True), ("once", False)):
        config = config_for(
            tmp_path / name,
            stage(checkpointing=again),
            mechanism=LEARNED,
            model={"dropout": 0.2},
        )
        train(config, task=Tiny(objective=objective))
        found.append(load(tmp_path / name, task=Tiny(objective=objective)).model.state_dict())
    for name, own in found[0].items():
        assert torch.equal(own, found[1][name]), name


def test_half_precision(tmp_path: Path) -> None:
    """Weights stay float32, and the loss is near that of float32 but another."""
    losses = {}
    for precision in ("bf16", "float32"):
        config = config_for(
            tmp_path / precision, stage(steps=8), mechanism=LEARNED, precision=precision
        )
        losses[precision] = train(config, task=Tiny())["loss"]
        model = load(tmp_path / precision, task=Tiny()).model
        assert all(own.dtype == torch.float32 for own in model.parameters())
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bf16"] != losses["float32"]


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Has Accelerate forget what a process is like."""
    from accelerate.state import AcceleratorState

    yield AcceleratorState._reset_state
    AcceleratorState._reset_state()


def test_a_precision_that_is_set_is_not_ours(forget: Callable[[], None], tmp_path: Path) -> None:
    """A Trainer, say, has told Accelerate another in the same process."""
    from accelerate import Accelerator

    config = config_for(tmp_path / "alone", stage(steps=4), mechanism=LEARNED)
    forget()
    alone = train(config, task=Tiny())["loss"]
    forget()
    Accelerator(mixed_precision="bf16", cpu=True)
    config = config_for(tmp_path / "beside", stage(steps=4), mechanism=LEARNED)
    assert train(config, task=Tiny())["loss"] == alone


def test_every_example_once_a_round() -> None:
    sampler = Sampler(10, seed=3)
    steps = [[sampler.step(step, 2, 2, process, 2) for process in range(2)] for step in range(5)]
    flat = [number for step in steps for process in step for part in process for number in part]
    for first in range(0, 40, 10):
        assert sorted(flat[first : first + 10]) == list(range(10))
    assert flat[:10] != flat[10:20]
    # Any step by itself, and one process with all of it.
    assert Sampler(10, seed=3).step(3, 8, 1, 0, 1) == [flat[24:32]]
    assert Sampler(10, seed=4).step(0, 8, 1, 0, 1) != [flat[:8]]
    with pytest.raises(ValueError, match="no examples"):
        Sampler(0, seed=0)


def test_learning_rates() -> None:
    from longspan.training.optim import learning_rate_share as share

    own = Stage(steps=10, warmup=0.2, schedule="linear")
    assert [share(own, step) for step in (0, 1, 2, 6)] == [0.5, 1.0, 1.0, 0.5]
    assert share(Stage(steps=10, warmup=4, schedule="constant"), 9) == 1.0
    cosine = Stage(steps=12, warmup=2, schedule="cosine")
    assert share(cosine, 7) == pytest.approx(0.5) and share(cosine, 11) < 0.03


def test_muon_for_the_matrices_of_blocks(tmp_path: Path) -> None:
    """AdamW for the rest; what is saved is filled into new ones, bit by bit."""
    from longspan.training import checkpoint
    from longspan.training.building import build, tasks_of
    from longspan.training.optim import optimizer_of
    from longspan.training.side_by_side import SideBySide

    task, own = Tiny(), stage(optimizer="muon", matrix_rate=2.0, steps=8, save_every=8)
    config = config_for(tmp_path, own, mechanism=LEARNED)
    made = build(config, own, task, tasks_of(config, task))
    both = optimizer_of(made, own)
    assert isinstance(both, SideBySide)
    muon, adam = both.optimizers
    names = {id(p): name for name, p in made.named_parameters()}
    turned = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    assert len(turned) == 2 * 6 and all("blocks" in own and "weight" in own for own in turned)
    assert [group["lr"] for group in muon.param_groups] == [2 * own.learning_rate]
    assert {group["lr"] for group in adam.param_groups} == {own.learning_rate}
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert turned | rest == set(names.values()) and not turned & rest
    result = train(config, task=task)
    plain = train(config_for(tmp_path / "adamw", stage(steps=8), mechanism=LEARNED), task=task)
    assert result["loss"] < 2.77 and result["loss"] != plain["loss"]
    path = checkpoint.latest(tmp_path)
    assert path is not None
    checkpoint.restore(path, made, both, torch.device("cpu"))
    again = optimizer_of(made, own)
    again.load_state_dict(both.state_dict())
    mine, theirs = both.state_dict(), again.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    assert len(mine["state"]) == len(names)
    for number, state in mine["state"].items():
        for name, value in state.items():
            assert torch.equal(
                torch.as_tensor(value), torch.as_tensor(theirs["state"][number][name])
            )
