"""Configs as JSON, and single values by name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longspan.training import RunConfig, Stage

from .tiny import LEARNED, config_for, stage


def test_through_json(tmp_path: Path) -> None:
    config = config_for(
        tmp_path,
        stage(name="short", cut=False),
        stage(name="long", windows=[1, 2], mechanism={"mean_reach": 9}, betas=(0.8, 0.9)),
        mechanism=[LEARNED, LEARNED],
        precision="bf16",
        seed=3,
    )
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    config.save(tmp_path / "config.json")
    assert RunConfig.read(tmp_path) == RunConfig.read(tmp_path / "config.json") == config


def test_set(tmp_path: Path) -> None:
    config = config_for(tmp_path, stage(name="a"), stage(name="b"), mechanism=LEARNED)
    changed = config.with_set(
        [
            "seed=4",
            "model.width=32",
            "stages.b.steps=9",
            "stages.0.schedule=linear",
            "stages.*.batch=2",
            "mechanism.mean_reach=5",
            "task.settings.length=7",
            "stages.a.task.name=recall",
        ]
    )
    assert changed.seed == 4 and changed.model["width"] == 32
    assert [own.steps for own in changed.stages] == [6, 9]
    assert [own.batch for own in changed.stages] == [2, 2]
    assert changed.stages[0].schedule == "linear" and changed.stages[0].task == {"name": "recall"}
    assert isinstance(changed.mechanism, dict) and changed.mechanism["mean_reach"] == 5
    assert config.seed == 0 and "width" in config.model


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("sead=1", r"no 'sead'; did you mean 'seed'"),
        ("model.widht=1", r"no 'widht'; did you mean 'width'"),
        ("stages.a.step=1", r"no 'step'; did you mean 'steps'"),
        ("stages.long.steps=1", r"no 'long'; there are 0, a"),
        ("stage.a.steps=1", r"no 'stage'; did you mean 'stages'"),
        ("seed.a=1", r"nothing inside that has a 'a'"),
        ("seed", r"takes key=value"),
        ("seed=x", r"seed must be an int"),
        ("precision=fp16", r"precision must be one of float32, bf16"),
        ("mechanism.kind=Window", r"mechanism must have a kind, one of Attention"),
    ],
)
def test_set_says_what_is_wrong(setting: str, says: str, tmp_path: Path) -> None:
    config = config_for(tmp_path, stage(name="a"), mechanism=LEARNED)
    with pytest.raises((ValueError, TypeError), match=says):
        config.with_set([setting])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": -1}, "steps must be at least 0"),
        ({"name": "a/b"}, "name must be a word"),
        ({"clip": 0.0}, "clip must be above 0, or None"),
        ({"eps": 0.0}, "eps must be above 0, got"),
        ({"learning_rate": -1.0}, "learning_rate must not be below 0"),
        ({"trains": "none"}, "trains must be one of all, reach, all but reach"),
        ({"schedule": "step"}, "schedule must be one of"),
        ({"cut": 1}, "cut must be True or False"),
    ],
)
def test_stages_say_what_is_wrong(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        Stage(**{"steps": 1, **options})


def test_configs_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no stage has steps, and there is no start"):
        config_for(tmp_path, stage(steps=0))
    with pytest.raises(ValueError, match="two stages are called 'a'"):
        config_for(tmp_path, stage(name="a"), stage(name="a"))
    with pytest.raises(ValueError, match="at least one Stage"):
        config_for(tmp_path)
    with pytest.raises(ValueError, match="stages is missing"):
        RunConfig.from_dict({"task": {"name": "x"}, "output": "y"})
    with pytest.raises(ValueError, match="task must be a dict with a name"):
        RunConfig(task={}, output="x", stages=(stage(),))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json, line 1: not JSON"):
        RunConfig.read(tmp_path / "bad.json")


def test_import_is_light() -> None:
    """Nothing that runs need is loaded before one begins."""
    code = (
        "import sys, longspan.training\n"
        "print([n for n in ('accelerate', 'transformers', 'tokenizers') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


def test_a_home_is_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for data: no shell has seen what stands behind an equals sign."""
    monkeypatch.setenv("HOME", "/home/ada")
    own = RunConfig(
        task={"name": "recall"}, stages=(Stage(steps=1),), output="~/runs", start="~/bert"
    )
    assert (own.output, own.start) == ("/home/ada/runs", "/home/ada/bert")
    assert replace(own, start="org/bert~1").start == "org/bert~1"
