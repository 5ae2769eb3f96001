"""What a run's windows have learned, as `longspan reaches` wrote it into `reaches.json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Means", "Named", "Study", "StudyLayer", "study_from"]

# A share of the variance, by the name of what explains it; None where nobody can tell.
Shares = dict[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """Mean reaches of tokens that differ in one thing.

    Attributes:
        levels: what they may be.
        tokens: how many of each there are.
        mean: over all layers and heads; None where there is no such token.
        layers: the same in each layer.
    """

    levels: Sequence[str]
    tokens: Sequence[int]
    mean: Sequence[float | None]
    layers: Sequence[Sequence[float | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyLayer:
    """One layer: its number from 0, mean, smallest, middle and largest reach, the share of reaches
    that are as large as they may be, and the means of its heads.
    """

    number: int
    mean: float
    low: float
    median: float
    high: float
    at_most: float
    heads: Sequence[float]


class Named(NamedTuple):
    """A token, its mean reach, and how often it was seen."""

    token: str
    mean: float
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What was found out about the reaches of a run.

    Attributes:
        task: the task's name.
        examples: how many were read.
        tokens: how many were counted in them.
        layers: those with learned windows.
        by: mean reaches by "kind", "position" and so on, where the task tells.
        explained: shares of the variance of ln(reach), of all layers together.
        explained_in: the same in each layer.
        far: the tokens that look furthest.
        near: those that look least far.
    """

    task: str
    examples: int
    tokens: int
    layers: Sequence[StudyLayer]
    by: dict[str, Means]
    explained: Shares
    explained_in: Sequence[Shares]
    far: Sequence[Named]
    near: Sequence[Named]


def study_from(found: Any) -> Study:
    """A study from JSON; raises ValueError with what is wrong and where."""
    whole = _object(found, "it")
    layers = [_layer(own, f"layers[{n}]") for n, own in enumerate(_list(whole, "layers"))]
    if not layers:
        raise ValueError("layers must not be empty")
    explained = _object(whole.get("explained"), "explained")
    named = _object(_object(whole.get("named"), "named").get("all"), "named.all")
    return Study(
        task=str(whole.get("task", "")),
        examples=_count(whole.get("examples"), "examples"),
        tokens=_count(whole.get("tokens"), "tokens"),
        layers=layers,
        by={
            str(name): _means(own, f"by.{name}", len(layers))
            for name, own in _object(whole.get("by"), "by").items()
        },
        explained=_shares(explained.get("all"), "explained.all"),
        explained_in=[
            _shares(own, f"explained.layers[{n}]")
            for n, own in enumerate(_list(explained, "layers", "explained.", len(layers)))
        ],
        far=_named(named, "far"),
        near=_named(named, "near"),
    )


def _layer(found: Any, where: str) -> StudyLayer:
    own = _object(found, where)
    quantiles = _numbers(_list(own, "quantiles", f"{where}.", 5), f"{where}.quantiles")
    heads = _list(own, "heads", f"{where}.")
    if not heads:
        raise ValueError(f"{where}.heads must not be empty")
    return StudyLayer(
        number=_count(own.get("layer"), f"{where}.layer"),
        mean=_number(own.get("mean"), f"{where}.mean"),
        low=quantiles[0],
        median=quantiles[2],
        high=quantiles[4],
        at_most=_number(own.get("at_most"), f"{where}.at_most"),
        heads=[
            _number(_object(head, f"{where}.heads[{h}]").get("mean"), f"{where}.heads[{h}].mean")
            for h, head in enumerate(heads)
        ],
    )


def _means(found: Any, where: str, layers: int) -> Means:
    own = _object(found, where)
    levels = [str(level) for level in _list(own, "levels", f"{where}.")]
    count = len(levels)
    tokens = _list(own, "tokens", f"{where}.", count)
    inner = _list(own, "layers", f"{where}.", layers)
    return Means(
        levels=levels,
        tokens=[_count(value, f"{where}.tokens") for value in tokens],
        mean=_some(own.get("mean"), f"{where}.mean", count),
        layers=[_some(layer, f"{where}.layers[{n}]", count) for n, layer in enumerate(inner)],
    )


def _named(found: dict[str, Any], end: str) -> list[Named]:
    where = f"named.all.{end}"
    return [
        Named(
            str(_object(own, f"{where}[{n}]").get("token", "")),
            _number(own.get("mean"), f"{where}[{n}].mean"),
            _count(own.get("tokens"), f"{where}[{n}].tokens"),
        )
        for n, own in enumerate(_list(found, end, "named.all."))
    ]


def _shares(found: Any, where: str) -> Shares:
    return {
        str(name): None if value is None else _number(value, f"{where}.{name}")
        for name, value in _object(found, where).items()
    }


def _some(found: Any, where: str, count: int) -> list[float | None]:
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"{where} must be a list of {count}")
    return [None if value is None else _number(value, where) for value in found]


def _object(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"{where} must hold an object")
    return found


def _list(owner: dict[str, Any], name: str, where: str = "", count: int | None = None) -> list[Any]:
    found = owner.get(name)
    if not isinstance(found, list) or count not in (None, len(found)):
        raise ValueError(f"{where}{name} must be a list" + (f" of {count}" if count else ""))
    return found


def _numbers(found: list[Any], where: str) -> list[float]:
    return [_number(value, where) for value in found]


def _number(found: Any, where: str) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 1e15:
        raise ValueError(f"{where} must be a number, got {found!r:.40}")
    return float(found)


def _count(found: Any, where: str) -> int:
    value = _number(found, where)
    if value < 0 or value != math.floor(value):
        raise ValueError(f"{where} must be a whole number, got {found!r:.40}")
    return int(value)
