"""What no gradient teaches is chosen on held examples, kept with the run, and taken from there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longspan.tasks.squad import Squad
from longspan.tasks.squad_reader import SquadReader
from longspan.training import RunConfig, Stage, estimating, load, run, train
from longspan.training.estimating import estimate

from ..tasks.test_squad_chosen import articles, written

pytest.importorskip("tokenizers")


def config(folder: Path, **settings: Any) -> RunConfig:
    data = written(folder / "train.json", articles(10))
    own = {
        "dev": str(written(folder / "measured.json", articles(2))),
        "length": 48, "question_length": 16, "vocabulary": 300, "mismatched": 1.0, **settings,
    }  # fmt: skip
    return RunConfig(
        task={"name": "squad", "data": str(data), "settings": own},
        model={"width": 16, "layers": 1, "heads": 2},
        stages=[Stage(steps=2, batch=4)],
        output=str(folder / "run"),
    )


def test_a_run_chooses_and_what_is_loaded_goes_by_it(tmp_path: Path) -> None:
    result = train(config(tmp_path, no_answer="chosen"))
    chosen = result["chosen"]["no_answer"]
    lines = [json.loads(s) for s in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["chosen"] == {"no_answer": chosen}
    task = load(tmp_path / "run").task
    assert isinstance(task, Squad) and task.no_answer == chosen != 0
    reader = load(tmp_path / "run").input_reader
    assert isinstance(reader, SquadReader) and reader.no_answer == chosen and reader.unanswerable
    assert task.settings["no_answer"] == "chosen"


def test_nothing_is_chosen_where_it_is_given(tmp_path: Path) -> None:
    result = train(config(tmp_path, no_answer=1.5))
    task = load(tmp_path / "run").task
    assert result["chosen"] is None
    assert isinstance(task, Squad) and task.no_answer == 1.5


def test_held_examples_are_counted_in_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six to be measured on and six that are held, of which four take a second."""
    monkeypatch.setattr(estimating, "_seconds", lambda call, device: 1.0)
    (alone,) = estimate(config(tmp_path))
    (both,) = estimate(config(tmp_path, no_answer="chosen"))
    assert (alone.evaluation, both.evaluation) == (1.5, 3.0)


@pytest.mark.parametrize("which", ["one", "two"])
def test_a_run_that_is_ended_before_a_stage_is_kept_chooses_once_more(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is chosen is in no checkpoint."""
    stages = [Stage(name=name, steps=2, batch=4) for name in ("one", "two")]
    own = replace(config(tmp_path, no_answer="chosen"), stages=stages)
    train(own)
    keep = run.save_learner

    def ended(learner: Any, folder: Path, *rest: Any) -> None:
        if folder.name == which:
            raise KeyboardInterrupt
        keep(learner, folder, *rest)

    other = replace(own, output=str(tmp_path / "other"))
    monkeypatch.setattr(run, "save_learner", ended)
    with pytest.raises(KeyboardInterrupt):
        train(other)
    monkeypatch.undo()
    train(other, resume=True)
    for name in ("one", "two"):
        found = [tmp_path / own / "stages" / name / "reader.json" for own in ("run", "other")]
        assert found[0].read_text() == found[1].read_text()
        assert json.loads(found[0].read_text())["fields"]["no_answer"] != 0
