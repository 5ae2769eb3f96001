"""Settings by name, as they stand in a command: keys that nobody knows, and values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ..errors import describe

__all__ = ["check_keys", "need_names", "unknown", "value_of"]


def unknown(owner: str, key: str, known: Iterable[str]) -> str:
    """What to say of a key that is not known: the nearest that is, or all of them."""
    names = sorted(known)
    near = get_close_matches(key, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    return f"{owner}: there is no {key!r}; {hint}"


def need_names(owner: str, given: Any) -> None:
    """Raises unless something is values by name."""
    if not isinstance(given, dict):
        raise TypeError(f"{owner} must be a dict of values by name, got {describe(given)}")


def check_keys(owner: str, given: dict[str, Any], known: Iterable[str]) -> None:
    """Raises at the first key that is not known."""
    need_names(owner, given)
    names = set(known)
    for key in given:
        if key not in names:
            raise ValueError(unknown(owner, key, names))


def value_of(text: str) -> Any:
    """A value as JSON, or a word where it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
