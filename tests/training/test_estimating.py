"""What a run will take: counts are exact, and what is measured has the right size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.memory import peak_growth
from longspan.training import build, estimate, estimating
from longspan.training.optim import optimizer_of

from .tiny import LEARNED, SLIDING, Tiny, config_for, stage

pytest.importorskip("accelerate")


def test_parameters_of_every_stage(tmp_path: Path) -> None:
    stages = (
        stage(name="both", steps=4),
        stage(name="reach", steps=4, trains="reach"),
        stage(name="rest", steps=4, reach_from="both"),
    )
    folder = tmp_path / "run"
    task = Tiny(objective="next")
    config = config_for(folder, *stages, mechanism=LEARNED)
    found = estimate(config, task=task, limit=0.1)
    assert not folder.exists()
    whole = sum(own.numel() for own in build(config, stages[0], task, [task]).parameters())
    # In two layers, two heads with a matrix of 8 × 8 and a vector.
    assert [own.reach for own in found] == [2 * 2 * (64 + 8)] * 3
    assert [own.parameters for own in found] == [whole] * 3
    assert [own.trained for own in found] == [whole, 288, whole - 288]
    # Projections for global tokens are the window's, and not what its reach is learned by.
    mechanism = LEARNED | {"global_projections": True}
    more = estimate(
        config_for(folder, *stages, mechanism=mechanism), task=Tiny(objective="spans"), limit=0.1
    )
    assert [own.reach for own in more] == [288] * 3
    assert [more[0].trained - own.trained for own in more[::2]] == [0, 288]
    for own in found:
        assert own.step is not None and own.evaluation is not None and own.seconds is not None
        assert own.seconds == pytest.approx(4 * own.step + own.evaluation)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_is_held_is_what_an_optimiser_has(optimizer: str, tmp_path: Path) -> None:
    own = stage(optimizer=optimizer)
    task = Tiny(objective="next")
    config = config_for(tmp_path, own, mechanism=LEARNED)
    learner = build(config, own, task, [task])
    made = optimizer_of(learner, own)
    for parameter in learner.parameters():
        parameter.grad = torch.ones_like(parameter)
    made.step()
    tensors = [*learner.parameters(), *learner.buffers()]
    tensors += [p.grad for p in learner.parameters() if p.grad is not None]
    for state in made.state_dict()["state"].values():
        # Each weight has the number of its steps, too, which nobody would count.
        tensors += [value for key, value in state.items() if key != "step"]
    assert sum(t.numel() * t.element_size() for t in tensors) == estimating._held(learner, own)


def test_evaluations_are_counted() -> None:
    assert estimating._evaluations(stage(steps=10)) == 1
    assert estimating._evaluations(stage(steps=10, evaluate_every=5)) == 2
    assert estimating._evaluations(stage(steps=10, evaluate_every=4)) == 3


def test_long_steps_are_measured_with_fewer_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Tiny):
        """Every example takes a while."""

        def batch(self, numbers: Any, split: str = "train") -> Any:
            if split == "train":
                import time

                time.sleep(0.05 * len(numbers))
            return super().batch(numbers, split)

    config = config_for(tmp_path, stage(batch=64, accumulate=2, steps=10), mechanism=SLIDING)
    (found,) = estimate(config, task=Slow(objective="spans"), limit=0.5)
    assert 1 <= found.examples <= 10
    assert found.step is not None and 64 * 2 * 0.05 <= found.step < 64 * 2 * 0.05 * 4


def test_memory_grows_with_the_batch(tmp_path: Path) -> None:
    if peak_growth(lambda: None, torch.device("cpu")) is None:
        pytest.skip("this system does not tell how much memory a call takes")
    task = Tiny(objective="next", length=512)
    sizes = []
    for batch in (2, 32):
        own = stage(batch=batch)
        config = config_for(tmp_path, own, mechanism=SLIDING, model={"width": 64})
        (found,) = estimate(config, task=task, limit=1.0)
        assert found.memory is not None
        sizes.append(found.memory - found.held)
    # Of a token, more than a hundred numbers for every channel of the residual stream are not kept.
    assert 32 * 256 * 64 * 4 * 2 < sizes[1] < 32 * 512 * 64 * 4 * 200
    assert sizes[1] > 3 * sizes[0]


def test_what_does_not_fit_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimating, "_free_memory", lambda device: 1000)
    (found,) = estimate(config_for(tmp_path, stage()), task=Tiny())
    assert found.seconds is None and found.memory is None and "more than" in found.why


def test_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="by one process"):
        estimate(config_for(tmp_path, stage()), task=Tiny())
