"""What `--option name=value` gives to a function: names that it has, and values of their types."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..training.naming import value_of

__all__ = ["named", "options_of"]

# A value as it was written, and as it reads: as JSON, or as a word where it is none.
Given = tuple[str, Any]

# How types are told: one value, and several.
WORDS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
    NoneType: ("null", "null"),
}


def named(options: list[str]) -> dict[str, Given]:
    """Options by their names."""
    found: dict[str, Given] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ValueError(f"--option takes name=value, got {option!r}")
        found[name] = (value, value_of(value))
    return found


def options_of(
    function: Callable[..., Any],
    owner: str,
    given: Mapping[str, Given],
    *,
    but: Collection[str] = (),
) -> dict[str, Any]:
    """The arguments of a function.

    Args:
        owner: what the messages call it.
        but: arguments that it is given in another way.

    Raises:
        ValueError: it has none of a name, a value is of another type than the function says, or
            one that it needs is missing.
    """
    parameters = inspect.signature(function).parameters
    open_ended = any(own.kind is own.VAR_KEYWORD for own in parameters.values())
    known = [
        name
        for name, own in parameters.items()
        if own.kind not in (own.VAR_KEYWORD, own.VAR_POSITIONAL) and name not in but
    ]
    hints = _hints(function)
    found = {}
    for name, (text, value) in given.items():
        if name not in known and not open_ended:
            near = get_close_matches(name, known, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(
                f"{owner} has no option {name!r}{meant}; it has {', '.join(known) or 'none'}"
            )
        hint = hints.get(name, Any)
        if not _fits(value, hint) and _fits(text, hint):
            # A file may be called 2024.
            value = text
        if not _fits(value, hint):
            raise ValueError(
                f"{owner}: --option {name} takes {_told(hint)}{_example(name, parameters[name])}; "
                f"got {_written(value, quoted=True)}"
            )
        found[name] = value
    for name in known:
        if parameters[name].default is inspect.Parameter.empty and name not in found:
            told = f", {_told(hints[name])}" if name in hints else ""
            raise ValueError(f"{owner} needs --option {name}=…{told}")
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        # Of a class, what makes one of it.
        return get_type_hints(vars(function)["__init__"] if isclass(function) else function)
    except (KeyError, NameError, TypeError, AttributeError):
        # Types that cannot be looked up when the function is called are its own matter.
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of JSON is of a type; what is not known here takes anything."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, own) for own in inner)
    if kind is Literal:
        return any(value == own and type(value) is type(own) for own in inner)
    if kind in (None, NoneType):
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in (str, Path):
        return isinstance(value, str)
    if kind is bool:
        return isinstance(value, bool)
    if _is(kind, Mapping):
        return isinstance(value, dict)
    if _is(kind, Collection):
        if not isinstance(value, list):
            return False
        if kind is tuple and inner and inner[-1] is not Ellipsis:
            return len(value) == len(inner) and all(map(_fits, value, inner))
        return all(_fits(own, inner[0] if inner else Any) for own in value)
    return True


def _is(kind: Any, of: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)


def _told(hint: Any, several: bool = False) -> str:
    """A type in words."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(_told(own, several) for own in inner)
    if kind is Literal:
        return " or ".join(map(str, inner))
    if kind in WORDS:
        return WORDS[kind][several]
    if _is(kind, Mapping):
        return "values by name"
    if _is(kind, Collection):
        lists = "lists" if several else "a list"
        if kind is tuple and inner and inner[-1] is not Ellipsis:
            return f"{lists} of {' and '.join(_told(own) for own in inner)}"
        return f"{lists} of {_told(inner[0], True)}" if inner else lists
    return "anything"


def _example(name: str, parameter: inspect.Parameter) -> str:
    """The option as it is where nobody gives it."""
    if parameter.default in (None, inspect.Parameter.empty):
        return ""
    return f", such as {name}={_written(parameter.default)}"


def _written(value: Any, *, quoted: bool = False) -> str:
    """As a command line has it."""
    if isinstance(value, str):
        return repr(value) if quoted else value
    try:
        return json.dumps(value)
    except TypeError:
        return repr(value)
