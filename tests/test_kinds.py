"""Patterns, weights and normalisers by name."""

from __future__ import annotations

import pytest
import torch

from longspan import normalizers, patterns, weights
from longspan.kinds import kind_named, name_of_kind, rebuilt
from longspan.patterns import Global, Pattern, Window


@pytest.mark.parametrize("kind", [patterns.Window, weights.Bell, normalizers.Entmax])
def test_a_class_is_known_by_its_name(kind: type) -> None:
    assert kind_named(name_of_kind(kind)) is kind


def test_a_new_class_is_known_at_once() -> None:
    class Own(Pattern):
        pass

    assert kind_named(name_of_kind(Own)) is Own


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(ValueError, match=r"'nobody\.Has'"):
        kind_named("nobody.Has")


@pytest.mark.parametrize(
    "made", [Window(1, None, 3), Global(torch.tensor([1]), rows=False), Global(keys=2)]
)
def test_an_object_from_its_fields(made: Pattern) -> None:
    again = rebuilt(type(made), list(made.values()))
    assert again == made and again is not made
    assert torch.equal(again.dense(5), made.dense(5))


def test_too_few_fields() -> None:
    with pytest.raises(ValueError):
        rebuilt(Window, [1])
