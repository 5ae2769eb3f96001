"""Runs whose blocks are compiled: the same numbers, and the same answers to what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

pytest.importorskip("accelerate")

from longspan.training import NotFiniteError, learner, train

from .tiny import LEARNED, Tiny, config_for, metrics_of, stage

# What PyTorch's compiler says to itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def anew() -> None:
    """Nothing is compiled yet."""
    torch._dynamo.reset()


@pytest.fixture
def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are made, but PyTorch's own kernels compute them: that takes no compiler."""
    monkeypatch.setattr(learner, "COMPILER", "aot_eager")


@pytest.mark.usefixtures("as_it_is")
@pytest.mark.parametrize(
    ("objective", "again"), [("next", False), ("spans", False), ("spans", True)]
)
def test_numbers_are_the_same(objective: str, again: bool, tmp_path: Path) -> None:
    found = {}
    for compiled in (False, True):
        counters.clear()
        folder = tmp_path / str(compiled)
        config = config_for(
            folder, stage(steps=6, record_every=1, checkpointing=again), mechanism=LEARNED,
            compiled=compiled,
        )  # fmt: skip
        result = train(config, task=Tiny(objective=objective))
        found[compiled] = result, metrics_of(folder)
        graphs = counters["stats"]["unique_graphs"]
        # One for texts with padding, and one for those without.
        assert 1 <= graphs <= 2 if compiled else graphs == 0
        assert not counters["graph_break"]
    (plain, first), (fast, second) = found[False], found[True]
    assert fast["loss"] == pytest.approx(plain["loss"], rel=1e-4)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
        if "reach" in one:
            means = [layer["mean"] for layer in one["reach"]["layer"]]
            own = [layer["mean"] for layer in other["reach"]["layer"]]
            assert own == pytest.approx(means, rel=1e-4)


@pytest.mark.usefixtures("as_it_is")
def test_what_is_not_finite_is_found(tmp_path: Path) -> None:
    config = config_for(
        tmp_path, stage(learning_rate=1e30, warmup=0), mechanism=LEARNED, compiled=True
    )
    with pytest.raises(NotFiniteError, match=r"step 2: the loss is nan") as found:
        train(config, task=Tiny(objective="spans"))
    assert "the output of body." in found.value.layer


def test_a_window_that_follows_is_not_computed_again(tmp_path: Path) -> None:
    own = config_for(tmp_path, stage(checkpointing=True), mechanism=LEARNED, compiled=True)
    with pytest.raises(ValueError, match="a causal or pooled LearnedWindow does not know"):
        train(own, task=Tiny(objective="next"))


def test_it_is_compiled(tmp_path: Path) -> None:
    config = config_for(tmp_path, stage(steps=2), mechanism=LEARNED, compiled=True)
    counters.clear()
    train(config, task=Tiny(objective="spans"))
    assert counters["inductor"] and not counters["graph_break"]


@pytest.mark.usefixtures("as_it_is")
@pytest.mark.parametrize(
    ("change", "graphs"),
    [
        ({}, 1),
        ({"batch": 3, "length": 16}, 1),
        ({"cut": False}, 2),
        ({"mechanism": {"mean_reach": 4}}, 2),
        ({"mechanism": {"kind": "SlidingWindow", "left": 3, "global_projections": False}}, 2),
        ({"trains": "all but reach"}, 2),
    ],
)
def test_a_stage_of_the_same_kind_is_compiled_no_more(
    change: dict[str, Any], graphs: int, tmp_path: Path
) -> None:
    config = config_for(
        tmp_path, stage(name="one", steps=2), stage(name="two", steps=2, **change),
        mechanism=LEARNED, compiled=True,
    )  # fmt: skip
    counters.clear()
    train(config, task=Tiny(objective="spans"))
    assert counters["stats"]["unique_graphs"] == graphs and not counters["graph_break"]


def test_it_is_yes_or_no(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="compiled must be"):
        config_for(tmp_path, stage(), compiled="inductor")


@torch._dynamo.config.patch(recompile_limit=1)
def test_the_next_run_is_compiled_too(tmp_path: Path, as_it_is: None) -> None:
    """PyTorch gives up on a function after some models; each run begins anew."""
    for number in range(2):
        counters.clear()
        mechanism = {**LEARNED, "max_reach": 10 + number}
        config = config_for(
            tmp_path / str(number), stage(steps=1), mechanism=mechanism, compiled=True
        )
        train(config, task=Tiny(objective="spans"))
        assert counters["stats"]["unique_graphs"] >= 1
