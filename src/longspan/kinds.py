"""Patterns, weights and normalisers by name, so that a traced program can speak of them in text and
numbers.
"""

from __future__ import annotations

from typing import Any

__all__ = ["kind_named", "name_of_kind", "rebuilt", "register_kind"]

_KINDS: dict[str, type] = {}


def register_kind(kind: type) -> None:
    """Makes a class known by its name; classes do so themselves when they are defined."""
    _KINDS[name_of_kind(kind)] = kind


def name_of_kind(kind: type) -> str:
    """The name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def kind_named(name: str) -> type:
    """The class of a name."""
    try:
        return _KINDS[name]
    except KeyError:
        raise ValueError(
            f"nothing is known as {name!r}: import the module that defines it first"
        ) from None


def rebuilt(kind: type, values: list[Any]) -> Any:
    """An object of a class from the values of its `fields`, which were checked when it was first
    made.
    """
    made: Any = object.__new__(kind)
    for name, value in zip(kind.fields, values, strict=True):  # type: ignore[attr-defined]
        setattr(made, name, value)
    return made
