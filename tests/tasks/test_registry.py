"""Tasks by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from longspan import tasks
from longspan.tasks.registry import kind_of_task


def test_every_name_has_a_class() -> None:
    for name in tasks.NAMES:
        assert kind_of_task(name).name == name


def test_an_unknown_name_and_an_unknown_setting_name_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no task 'sqad' \(did you mean squad\?\)"):
        tasks.make("sqad")
    with pytest.raises(
        ValueError, match=r"no setting 'lenght' \(did you mean length\?\); it has distance,"
    ):
        tasks.make("recall", lenght=4)


OWN = """
import torch
from longspan.tasks import Recall

class Mine(Recall):
    name = "mine"
"""


def test_a_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my_tasks.py"
    path.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    for name in (f"{path}:Mine", "my_tasks:Mine"):
        task = tasks.make(name, length=90)
        described = task.describe()
        assert (task.name, described["name"]) == ("mine", name)
        assert tasks.from_description(described).describe() == described
    for name, message in (
        ("my_tasks:Yours", "my_tasks has no class Yours that is a Task"),
        ("my_tasks:torch", "has no class torch that is a Task"),
        ("your_tasks:Mine", "there is no module your_tasks"),
    ):
        with pytest.raises(ValueError, match=message):
            tasks.make(name)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent"):
        tasks.make(f"{tmp_path / 'absent.py'}:Mine")


def test_a_vocabulary_that_does_not_fit_a_checkpoint() -> None:
    task = tasks.make("recall")
    task.need_vocabulary(34, "the checkpoint")
    message = "tokens are numbered up to 33, but bert-base knows 33: name the tokenizer of bert"
    with pytest.raises(ValueError, match=message):
        task.need_vocabulary(33, "bert-base")


def test_an_unknown_split_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="recall has no split 'test': choose train or dev"):
        tasks.make("recall").batch([0], "test")


def test_examples_are_a_sequence() -> None:
    found = tasks.Examples(3, lambda number: 10 * number)
    assert list(found) == [0, 10, 20] and found[-1] == 20 and found[1:] == [10, 20]
    with pytest.raises(IndexError, match="there are 3 examples, asked for number 3"):
        found[3]
