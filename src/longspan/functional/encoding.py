"""A call's pattern, weights and normaliser as text, numbers and tensors: what an operator of a
traced program can take.

The text gives the structure alone; numbers and tensors are lists beside it, in the order in which
the text names them, so that neither a new length nor a new window needs a new text. Letters: `_`
None, `T` and `F`, `i` the next int, `f` the next float, `t` the next fixed tensor, `g` the next
learned one, `'3'and` a word of three letters, `[…]` a tuple, `{…}` a list, `@name(…)` an object
with its fields.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import describe
from ..kinds import kind_named, name_of_kind, rebuilt
from ..normalizers import Normalizer
from ..patterns import Pattern
from ..weights import Weight

__all__ = ["Encoded", "Meaning", "decode", "encode", "tensors_of_patterns"]


class Meaning(NamedTuple):
    """What a call means, besides q, k and v."""

    pattern: Pattern
    weights: tuple[Weight, ...]
    normalizer: Normalizer


class Encoded(NamedTuple):
    """A meaning as text, numbers and tensors."""

    text: str
    learned: list[Tensor]
    fixed: list[Tensor]
    ints: list[int]
    floats: list[float]


def encode(meaning: Meaning) -> Encoded:
    """Takes a meaning apart. Plain enough for `torch.compile` to trace."""
    found = Encoded("", [], [], [], [])
    text = _text(meaning.pattern, found)
    for weight in meaning.weights:
        text += _text(weight, found)
    text += _text(meaning.normalizer, found)
    return Encoded(text, found.learned, found.fixed, found.ints, found.floats)


def tensors_of_patterns(meaning: Meaning) -> list[Tensor]:
    """The tensors that say which pairs exist, before weights cut."""
    found = Encoded("", [], [], [], [])
    _text(meaning.pattern, found)
    for weight in meaning.weights:
        _text(weight.exempt, found)
    return found.fixed


def _text(value: Any, found: Encoded, field: str = "", learned: bool = False) -> str:
    """The text of a value, which is that of an object's field."""
    if value is None:
        return "_"
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, Tensor):
        (found.learned if learned else found.fixed).append(value)
        return "g" if learned else "t"
    if isinstance(value, (int, torch.SymInt)):
        found.ints.append(value)  # type: ignore[arg-type]
        return "i"
    if isinstance(value, (float, torch.SymFloat)):
        found.floats.append(value)  # type: ignore[arg-type]
        return "f"
    if isinstance(value, str):
        return f"'{len(value)}'" + value
    if isinstance(value, (tuple, list)):
        text = ""
        for part in value:
            text += _text(part, found, field)
        return "[" + text + "]" if isinstance(value, tuple) else "{" + text + "}"
    if not isinstance(value, (Pattern, Weight, Normalizer)):
        raise TypeError(
            f"{field} must be made of numbers, words, tensors, patterns, tuples and lists for a "
            f"program that is traced, got {describe(value)}"
        )
    kind = type(value)
    text = "@" + name_of_kind(kind) + "("
    names = () if isinstance(value, Pattern) else value.learned
    for name in value.fields:
        text += _text(getattr(value, name), found, f"{kind.__name__}: {name}", name in names)
    return text + ")"


def decode(
    text: str, learned: list[Tensor], fixed: list[Tensor], ints: list[int], floats: list[float]
) -> Meaning:
    """Puts a meaning together again."""
    lists = {"g": iter(learned), "t": iter(fixed), "i": iter(ints), "f": iter(floats)}
    objects = [_built(node, lists) for node in _parsed(text)]
    return Meaning(objects[0], tuple(objects[1:-1]), objects[-1])


def _built(node: Any, lists: dict[str, Any]) -> Any:
    kind, parts = node
    if kind in lists:
        return next(lists[kind])
    if kind == "word":
        return parts
    if kind in ("tuple", "list"):
        own = [_built(part, lists) for part in parts]
        return tuple(own) if kind == "tuple" else own
    if kind in "_TF":
        return {"_": None, "T": True, "F": False}[kind]
    return rebuilt(kind_named(kind), [_built(part, lists) for part in parts])


@lru_cache(maxsize=512)
def _parsed(text: str) -> tuple[Any, ...]:
    """The text as nodes (kind, parts)."""
    nodes, place = _nodes(text, 0, "")
    assert place == len(text)
    return nodes


def _nodes(text: str, place: int, end: str) -> tuple[tuple[Any, ...], int]:
    found: list[Any] = []
    while place < len(text) and text[place] != end:
        letter = text[place]
        if letter == "'":
            start = text.index("'", place + 1) + 1
            stop = start + int(text[place + 1 : start - 1])
            found.append(("word", text[start:stop]))
            place = stop
        elif letter in "[{":
            parts, stop = _nodes(text, place + 1, "]" if letter == "[" else "}")
            found.append(("tuple" if letter == "[" else "list", parts))
            place = stop + 1
        elif letter == "@":
            opening = text.index("(", place)
            parts, stop = _nodes(text, opening + 1, ")")
            found.append((text[place + 1 : opening], parts))
            place = stop + 1
        else:
            found.append((letter, ()))
            place += 1
    return tuple(found), place
