"""Patterns, weights and normalisers by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from longspan import normalizers, patterns, weights
from longspan.kinds import kind_named, name_of_kind, rebuilt
from longspan.patterns import Global, Pattern, Window
from longspan.weights import Weight


@pytest.mark.parametrize("kind", [patterns.Window, weights.Bell, normalizers.Entmax])
def test_a_class_is_known_by_its_name(kind: type) -> None:
    assert kind_named(name_of_kind(kind)) is kind


def test_a_new_class_is_known_at_once() -> None:
    class Own(Pattern):
        pass

    assert kind_named(name_of_kind(Own)) is Own


def namesake(base: type) -> type:
    """A new class every time, always of the same name."""

    class Own(base):
        pass

    return Own


@pytest.mark.parametrize("base", [Pattern, weights.Bell, normalizers.Normalizer])
def test_classes_of_one_name_are_told_apart(base: type) -> None:
    kinds = [namesake(base) for _ in range(3)]
    assert len({name_of_kind(kind) for kind in kinds}) == 3
    for kind in kinds:
        assert kind_named(name_of_kind(kind)) is kind


def test_the_first_of_a_name_has_it_alone() -> None:
    """Programs that were saved know classes by the names that these have in every process."""

    class First(Pattern):
        pass

    assert name_of_kind(First) == f"{__name__}.{First.__qualname__}"


def test_a_later_one_of_a_name_is_not_taken_for_another() -> None:
    kind = namesake(Pattern)
    with pytest.raises(ValueError, match=r"known as .*Own#10000'.* the one process"):
        kind_named(f"{kind.__module__}.{kind.__qualname__}#10000")


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


@dataclass(frozen=True, slots=True, eq=False)
class Frozen(Pattern):
    """A class that is made twice, and lets nothing be set."""

    fields: ClassVar = ("most",)
    most: int


def test_an_object_of_a_frozen_class() -> None:
    assert kind_named(name_of_kind(Frozen)) is Frozen
    again = rebuilt(Frozen, [3])
    assert again == Frozen(3) and again.most == 3


def test_too_few_fields() -> None:
    with pytest.raises(ValueError):
        rebuilt(Window, [1])


@pytest.mark.parametrize("base", [Pattern, Weight])
def test_fields_name_all_arguments(base: type) -> None:
    """Two objects of other arguments would otherwise be taken for one."""

    def __init__(self: object, reach: int, side: int = 0) -> None: ...

    with pytest.raises(TypeError, match=r"Near: .* side is missing: .* \('reach', 'side',\)"):
        type("Near", (base,), {"fields": ("reach",), "__init__": __init__})
