"""Meanings survive being taken apart for a traced program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longspan.functional.encoding import Meaning, decode, encode
from longspan.normalizers import Entmax, Softmax
from longspan.patterns import (
    Causal,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Window,
    bigbird,
)
from longspan.weights import Alibi, Bell, Ramp, RelativePosition, Weight

MEANINGS = [
    Meaning(Full(), (), Softmax()),
    Meaning(Window(None, 3, 2) | Global(2), (), Entmax(1.5)),
    Meaning(Causal() & (Window(1, 0) | Random(2, 8, table=[[0, 1], [1, -1]])), (), Softmax()),
    Meaning(bigbird(256, block=16), (Alibi(torch.ones(2)),), Entmax(torch.tensor([1.2, 1.4]))),
    Meaning(PerHead([Causal(), Window(1, 1)]), (Bell(3.0, exempt=Global(1)),), Softmax()),
    Meaning(
        SameDocument(torch.zeros(1, 4, dtype=torch.long)) | Mask(torch.ones(1, 1, 4, 4).bool()),
        (
            Bell(torch.ones(4), threshold=0.5, form="weight", normalized=True),
            Ramp(torch.ones(2), 3.0),
            RelativePosition(torch.ones(1, 3, 2), None, torch.ones(1, 2)),
        ),
        Softmax(),
    ),
]


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda m: repr(m.pattern)[:40])
def test_round_trip(meaning: Meaning) -> None:
    found = encode(meaning)
    back = decode(found.text, found.learned, found.fixed, found.ints, found.floats)
    assert back.pattern == meaning.pattern
    assert repr(back) == repr(meaning)
    for mine, theirs in zip(back.weights, meaning.weights, strict=True):
        assert type(mine) is type(theirs)
        for a, b in zip(mine.values(), theirs.values(), strict=True):
            assert a is b or a == b


def by_distance(far: int) -> Pattern:
    """A pattern of a class made anew, with a rule of its own, under the name of all others."""

    class Near(Pattern):
        def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
            return ((i - j).abs() <= far)[None, None]

    return Near()


def test_classes_of_one_name_keep_their_meanings() -> None:
    near, far = by_distance(1), by_distance(20)
    for pattern in (near, far, near):
        found = encode(Meaning(pattern, (), Softmax()))
        back = decode(found.text, found.learned, found.fixed, found.ints, found.floats).pattern
        assert type(back) is type(pattern)
        assert torch.equal(back.dense(40), pattern.dense(40))


class Worded(Weight):
    """A weight from elsewhere, with a word of any letters, and a list, among its values."""

    fields = ("word", "numbers")

    def __init__(self, word: str, numbers: list[int]) -> None:
        self.word, self.numbers = word, numbers


@pytest.mark.parametrize("word", ["", "it's", "')](@T", "3'", "🪟"])
def test_words_of_any_letters(word: str) -> None:
    meaning = Meaning(Full(), (Worded(word, [1, 2]), Worded("next", [])), Softmax())
    found = encode(meaning)
    back = decode(found.text, found.learned, found.fixed, found.ints, found.floats)
    assert repr(back) == repr(meaning)


def test_what_has_no_text_is_named() -> None:
    with pytest.raises(TypeError, match=r"Worded: numbers .*dict"):
        encode(Meaning(Full(), (Worded("", {}),), Softmax()))  # type: ignore[arg-type]


def test_text_holds_no_numbers() -> None:
    texts = {encode(Meaning(Window(n, n) | Global(n), (), Softmax())).text for n in range(9)}
    assert len(texts) == 1


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(ValueError, match=r"nothing is known as 'some\.Pattern'"):
        decode("@some.Pattern()@longspan.normalizers.family.Softmax()", [], [], [], [])
