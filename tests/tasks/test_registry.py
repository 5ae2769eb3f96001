"""Tasks by name."""

from __future__ import annotations

import pytest

from longspan import tasks


def test_every_name_has_a_class() -> None:
    for name in tasks.NAMES:
        assert tasks.registry.kind_of_task(name).name == name


def test_an_unknown_name_and_an_unknown_setting_name_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no task 'sqad' \(did you mean squad\?\)"):
        tasks.make("sqad")
    with pytest.raises(ValueError, match=r"recall has no setting 'lenght'; did you mean length\?"):
        tasks.make("recall", lenght=4)


def test_an_unknown_split_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="recall has no split 'test': choose train or dev"):
        tasks.make("recall").batch([0], "test")


def test_examples_are_a_sequence() -> None:
    found = tasks.Examples(3, lambda number: 10 * number)
    assert list(found) == [0, 10, 20] and found[-1] == 20 and found[1:] == [10, 20]
    with pytest.raises(IndexError, match="there are 3 examples, asked for number 3"):
        found[3]
