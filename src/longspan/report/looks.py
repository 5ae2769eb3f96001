"""What every token of one document sees, as a run wrote it into `looks.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Head", "Layer", "Look", "look_from"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """One head of a layer: for each token the first and last key of its interval, and its reach."""

    low: Sequence[int]
    high: Sequence[int]
    reach: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer: the name of its mechanism, and its heads."""

    mechanism: str
    heads: Sequence[Head]


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One document of a run.

    Attributes:
        tokens: their texts.
        real: False for padding.
        question: which tokens are of the question; None where there is none.
        is_global: which tokens see all, and are seen by all.
        layers: what each layer sees.
        answer: what the model made of it, as the run wrote it.
    """

    tokens: Sequence[str]
    real: Sequence[bool]
    question: Sequence[bool] | None
    is_global: Sequence[bool]
    layers: Sequence[Layer]
    answer: dict[str, Any] | None


def look_from(found: Any) -> Look | None:
    """A look from JSON, None if it has no layer; raises ValueError with what is wrong and where."""
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ValueError("it must hold an object")
    tokens = found.get("tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise ValueError("tokens must be a list of texts, and not empty")
    count = len(tokens)
    layers = found.get("layers")
    if not isinstance(layers, list):
        raise ValueError("layers must be a list")
    if not layers:
        return None
    question = found.get("question")
    answer = found.get("answer")
    return Look(
        tokens=tokens,
        real=_flags(found.get("real"), "real", count, missing=True),
        question=None if question is None else _flags(question, "question", count),
        is_global=_flags(found.get("global"), "global", count, missing=False),
        layers=[_layer(layer, f"layers[{place}]", count) for place, layer in enumerate(layers)],
        answer=answer if isinstance(answer, dict) else None,
    )


def _layer(found: Any, where: str, count: int) -> Layer:
    heads = found.get("heads") if isinstance(found, dict) else None
    if not isinstance(heads, list) or not heads:
        raise ValueError(f"{where}.heads must be a list, and not empty")
    return Layer(
        mechanism=str(found.get("mechanism", "")),
        heads=[_head(head, f"{where}.heads[{h}]", count) for h, head in enumerate(heads)],
    )


def _head(found: Any, where: str, count: int) -> Head:
    if not isinstance(found, dict):
        raise ValueError(f"{where} must be an object")
    low, high = (_numbers(found.get(side), f"{where}.{side}", count) for side in ("low", "high"))
    for row, (first, last) in enumerate(zip(low, high, strict=True)):
        # An interval whose end is before its beginning is that of a token that sees nothing.
        if first < 0 or last >= count:
            raise ValueError(
                f"{where}: token {row} sees {first:g} to {last:g}, and there are {count} tokens"
            )
    reach = found.get("reach")
    if isinstance(reach, list) and len(reach) == count:
        # A reach without end is written as null, since JSON has none: it goes as far as is seen.
        reach = [
            max(0, place - low[place], high[place] - place) if value is None else value
            for place, value in enumerate(reach)
        ]
    return Head(
        low=[int(value) for value in low],
        high=[int(value) for value in high],
        reach=[max(0.0, value) for value in _numbers(reach, f"{where}.reach", count)],
    )


def _numbers(found: Any, where: str, count: int) -> list[float]:
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"{where} must have a number for each of {count} tokens")
    for value in found:
        # NaN and infinity fail the comparison, too.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
            raise ValueError(f"{where} must hold numbers, got {value!r}")
    return found


def _flags(found: Any, where: str, count: int, *, missing: bool = False) -> list[bool]:
    if found is None:
        return [missing] * count
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"{where} must say true or false for each of {count} tokens")
    return [bool(value) for value in found]
