"""Tasks by name."""

from __future__ import annotations

import subprocess
import sys
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


def test_tasks_are_light_to_import() -> None:
    code = (
        "import sys, longspan.tasks; longspan.tasks.make('recall').batch([0]); "
        "print([n for n in ('tokenizers', 'sacrebleu', 'seqeval', 'rich') if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


def test_a_file_imports_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has dataclasses whose annotations are text."""
    (tmp_path / "beside_it.py").write_text("LENGTH = 12\n")
    (tmp_path / "far.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from beside_it import LENGTH\n"
        "from longspan.tasks import Recall\n"
        "@dataclass\n"
        "class Settings:\n"
        "    length: int = LENGTH\n"
        "class Own(Recall):\n"
        "    def __init__(self, data=None, *, cache=None):\n"
        "        super().__init__(length=Settings().length, distance=3)\n"
    )
    before = list(sys.path)
    assert tasks.make(f"{tmp_path / 'far.py'}:Own").length == 12
    (tmp_path / "bad.py").write_text("1 / 0\n")
    names = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        tasks.make(f"{tmp_path / 'bad.py'}:Own")
    assert sys.path == before and set(sys.modules) == names
    del sys.modules["beside_it"]
