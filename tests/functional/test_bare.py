"""Meanings survive losing their tensors and getting them back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.functional.bare import bared, whole
from longspan.functional.encoding import Meaning, encode
from longspan.patterns import Window
from longspan.weights import Bell

from .test_encoding import MEANINGS


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in tensors_in(part)]
    return [x for part in vars(value).values() for x in tensors_in(part)] if vars_of(value) else []


def vars_of(value: Any) -> bool:
    own = hasattr(value, "fields") and hasattr(value, "__dict__")
    return own and not isinstance(value, type)


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda m: repr(m.pattern)[:40])
def test_round_trip(meaning: Meaning) -> None:
    bare, learned, fixed = bared(meaning)
    assert tensors_in(bare) == []
    encoded = encode(meaning)
    for mine, theirs in ((learned, encoded.learned), (fixed, encoded.fixed)):
        assert [id(x) for x in mine] == [id(x) for x in theirs]
    back = whole(bare, learned, fixed)
    assert back.pattern == meaning.pattern
    assert repr(back) == repr(meaning)
    assert [type(w) for w in back.weights] == [type(w) for w in meaning.weights]
    assert [id(x) for x in tensors_in(back)] == [id(x) for x in tensors_in(meaning)]


def test_other_tensors_can_take_their_place() -> None:
    mine, theirs = torch.ones(4), torch.zeros(4)
    bare, _, _ = bared(Meaning(Window(1, 1), (Bell(mine),), MEANINGS[0].normalizer))
    weight = whole(bare, [theirs], []).weights[0]
    assert isinstance(weight, Bell)
    assert weight.variance is theirs
