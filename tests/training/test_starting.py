"""Runs that start from others: what they take, and what tells two starts apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import LearnedWindow, SlidingWindow
from longspan.recipes import Plan, Planned, long_documents, longer_texts, scales
from longspan.training import RunConfig, Stage, load, train
from longspan.training.saving import load_learner, read
from longspan.training.starting import is_run, stage_of

from .. import small_tasks
from .tiny import LEARNED, SLIDING, Tiny, config_for, stage

pytest.importorskip("accelerate")

FULL = {"kind": "FullAttention"}


def weights(run: Path, name: str) -> dict[str, Tensor]:
    return read(run / "stages" / name)[1]


def test_started_from_a_run(tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "a", stage(), mechanism=SLIDING), task=task)
    own = stage(learning_rate=0.0)
    second = config_for(tmp_path / "b", own, mechanism=SLIDING, start=str(tmp_path / "a"), seed=9)
    train(second, task=task)
    first, found = weights(tmp_path / "a", "train"), weights(tmp_path / "b", "train")
    assert all(torch.equal(own, first[name]) for name, own in found.items())


@pytest.mark.parametrize("mechanism", [LEARNED, SLIDING, FULL])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_started_from_a_run_with_another_mechanism(
    positions: str, mechanism: Any, tmp_path: Path
) -> None:
    """And of longer texts. Nothing has to be said of the model: the run tells."""
    short, long = Tiny(objective="spans", length=12), Tiny(objective="spans")
    sizes = {"positions": positions, "hidden": 24}
    before = FULL
    train(config_for(tmp_path / "a", stage(), mechanism=before, model=sizes), task=short)
    run = RunConfig(
        task={"name": "tests.training.tiny:Tiny"}, output=str(tmp_path / "b"), seed=5,
        stages=(stage(learning_rate=0.0),), mechanism=mechanism, start=str(tmp_path / "a"),
        model={"attention_dropout": 0.0},
    )  # fmt: skip
    train(run, task=long)
    first, found = weights(tmp_path / "a", "train"), weights(tmp_path / "b", "train")
    own = {name for name in found if ".mechanism." in name}
    table = "body.positions.weight"
    same = found.keys() - own - {table}
    assert same == first.keys() - {table}
    assert all(torch.equal(found[name], first[name]) for name in same)
    if positions == "learned":
        assert torch.equal(found[table], torch.cat([first[table]] * 2)) and len(first[table]) == 12
    model = load_learner(tmp_path / "b" / "stages" / "train")
    assert [type(each).__name__ for each in model.mechanisms()] == [mechanism["kind"]] * 2
    for part in model.layers():
        window: Any = part.mechanism
        if isinstance(window, SlidingWindow):
            for side in "qkv":
                copied = getattr(window, f"{side}_global").weight
                assert torch.equal(copied, getattr(part, f"{side}_proj").weight)
        if isinstance(window, LearnedWindow):
            assert not window.U_d.any()


def test_a_learned_window_that_follows_starts_anew_from_another(tmp_path: Path) -> None:
    """No budget was there whose factor could be taken on."""
    task = Tiny()
    train(config_for(tmp_path / "a", stage(), mechanism=FULL), task=task)
    second = config_for(
        tmp_path / "b", stage(steps=1), mechanism=LEARNED, start=str(tmp_path / "a")
    )
    assert train(second, task=task)["steps"] == 1


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ({"sided": True}, {}),
        ({}, {"reads": "stream"}),
        ({"shared": "tokens"}, {}),
        ({}, {"shared": "heads"}),
    ],
)
def test_learned_windows_that_mean_something_else(
    there: dict[str, Any], here: dict[str, Any], tmp_path: Path
) -> None:
    """Said before anything is written."""
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "a", stage(), mechanism={**LEARNED, **there}), task=task)
    second = config_for(
        tmp_path / "b", stage(), mechanism={**LEARNED, **here}, start=str(tmp_path / "a")
    )
    with pytest.raises(ValueError, match=r"the learned windows of .*train must have"):
        train(second, task=task)
    assert not (tmp_path / "b").exists()


def test_a_run_that_has_not_ended_is_no_start(tmp_path: Path) -> None:
    """Its last stage would be another one later; a stage can be named."""
    task = Tiny(objective="spans")
    two = (stage(name="one"), stage(name="two"))
    train(config_for(tmp_path / "a", *two, mechanism=FULL), task=task)
    (tmp_path / "a" / "result.json").unlink()
    again = config_for(tmp_path / "b", stage(), mechanism=FULL, start=str(tmp_path / "a"))
    with pytest.raises(ValueError, match="has not ended"):
        train(again, task=task)
    shutil.rmtree(tmp_path / "a" / "stages")
    assert is_run(str(tmp_path / "a")) and not is_run(str(tmp_path)) and not is_run(None)
    with pytest.raises(ValueError, match="has not ended"):
        train(again, task=task)


def test_a_stage_can_be_named(tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    two = (stage(name="one"), stage(name="two"))
    train(config_for(tmp_path / "a", *two, mechanism=FULL), task=task)
    own = str(tmp_path / "a" / "stages" / "one")
    assert is_run(own) and stage_of(own) == Path(own)
    still = stage(learning_rate=0.0)
    train(config_for(tmp_path / "b", still, mechanism=FULL, start=own), task=task)
    first, found = weights(tmp_path / "a", "one"), weights(tmp_path / "b", "train")
    assert all(torch.equal(own, first[name]) for name, own in found.items())


def test_weights_that_changed_are_named(tmp_path: Path) -> None:
    """A run that was begun with others, and one that has ended, are of those."""
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "a", stage(), mechanism=FULL), task=task)
    train(config_for(tmp_path / "c", stage(), mechanism=FULL, seed=1), task=task)
    config = config_for(tmp_path / "b", stage(), mechanism=FULL, start=str(tmp_path / "a"))
    before = train(config, task=task)
    assert train(config, task=task, resume=True) == before
    other = tmp_path / "c" / "stages" / "train" / "model.safetensors"
    shutil.copy(other, tmp_path / "a" / "stages" / "train")
    with pytest.raises(ValueError, match=r"the weights in .* changed since the run began"):
        train(config, task=task, resume=True)


def squad_run(folder: Path, mechanism: dict[str, Any], **more: Any) -> Path:
    settings = {**small_tasks.TASKS["squad"][2], **more.pop("settings", {})}
    data = str(small_tasks.data_of("squad", folder))
    config = RunConfig(
        task={"name": "squad", "data": data, "settings": settings},
        mechanism=mechanism, stages=(Stage(steps=1, batch=4),), output=str(folder / "run"),
        **({"model": {"width": 16, "layers": 1, "heads": 2}} | more),
    )  # fmt: skip
    train(config)
    return folder / "run"


def test_tokens_have_the_same_numbers(tmp_path: Path) -> None:
    """As many other tokens would each be taken for one that was learned."""
    first = squad_run(tmp_path / "a", FULL)
    tokenizer = {"settings": {"tokenizer": str(first / "stages" / "train")}}
    second = squad_run(tmp_path / "b", FULL, model={}, start=str(first), **tokenizer)
    assert weights(second, "train").keys() == weights(first, "train").keys()
    told = small_tasks.data_of("squad", tmp_path / "a")
    text = tmp_path / told.name
    text.write_text(told.read_text(encoding="utf-8").replace("Who", "Wem"), encoding="utf-8")
    config = RunConfig(
        task={"name": "squad", "data": str(text), "settings": small_tasks.TASKS["squad"][2]},
        mechanism=FULL, stages=(Stage(steps=1),), output=str(tmp_path / "d"), start=str(first),
    )  # fmt: skip
    with pytest.raises(ValueError, match="has learned other tokens"):
        train(config)


def test_what_was_trained_is_whole_without_its_start(tmp_path: Path) -> None:
    """The tokenizer that was named there lies beside the model, too."""
    first = squad_run(tmp_path / "a", FULL)
    tokenizer = {"settings": {"tokenizer": str(first / "stages" / "train")}}
    second = squad_run(tmp_path / "b", FULL, model={}, start=str(first), **tokenizer)
    shutil.rmtree(first)
    assert "f1" in load(second).evaluate()["metrics"]


def test_recipes_compare_from_the_same_beginning(tmp_path: Path) -> None:
    """A row of a fixed reach would have the one that was learned before."""
    learned = squad_run(tmp_path / "a", {"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8})
    with pytest.raises(ValueError, match="has learned windows"):
        long_documents(start=str(learned))
    full = str(squad_run(tmp_path / "b", FULL))
    plan = scales(start=full, seeds=(0,))
    tokenizer = str(tmp_path / "b" / "run" / "stages" / "train")
    assert plan.runs[0].config.task["settings"]["tokenizer"] == tokenizer
    # What has learned already is measured alone.
    for run in longer_texts(start=full).runs:
        assert [own.steps for own in run.config.stages] == [0]


def test_records_know_their_start(tmp_path: Path) -> None:
    """By its weights: folders of one name hold others."""
    from longspan.lab.records import check_record, keep

    task = Tiny(objective="spans")
    for name in ("x", "y"):
        seed = "xy".index(name)
        train(config_for(tmp_path / name / "base", stage(), mechanism=FULL, seed=seed), task=task)

    def planned(name: str) -> Planned:
        start = str(tmp_path / name / "base")
        config = config_for(
            tmp_path / "run", stage(task={"settings": {}}), mechanism=FULL, start=start
        )
        return Planned(row="a row", config=config)

    plan = Plan(title="one", about="", runs=(planned("x"),))
    train(planned("x").config, task=task)
    path = keep(tmp_path / "records", plan, planned("x"), tmp_path / "run")
    assert str(tmp_path) not in path.read_text() and json.loads(path.read_text())["data"]["start"]
    check_record(tmp_path / "records", planned("x"), [])
    with pytest.raises(ValueError, match="is of another start"):
        check_record(tmp_path / "records", planned("y"), [])
