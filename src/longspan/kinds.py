"""Patterns, weights and normalisers by name, so that a traced program can speak of them in text and
numbers.
"""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["check_fields", "kind_named", "name_of_kind", "rebuilt", "register_kind"]

_KINDS: dict[str, type] = {}


def check_fields(kind: type, what: str) -> None:
    """Raises unless a class names all arguments of its constructor in `fields`: objects with the
    same fields count as the same, and one that is made again has nothing else.
    """
    own = kind.__dict__.get("__init__")
    if own is None:
        if kind.__init__ is not object.__init__:  # type: ignore[misc]
            return
        # A dataclass gets its constructor only after this.
        told = inspect.get_annotations(kind)
        names = [
            name for name, one in told.items() if name[0] != "_" and "ClassVar" not in str(one)
        ]
    else:
        _, *parameters = inspect.signature(own).parameters.values()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = [one.name for one in parameters if one.kind not in several]
    missing = [name for name in names if name not in kind.fields]  # type: ignore[attr-defined]
    if missing:
        raise TypeError(
            f"{what} {kind.__name__}: fields must name every argument of its constructor, and "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: write "
            f"fields = ({''.join(f'{name!r}, ' for name in names).rstrip()})"
        )


def register_kind(kind: type) -> None:
    """Makes a class known by its name; classes do so themselves when they are defined.

    One that is defined anew (a cell of a notebook that runs again, a function called twice) has the
    name of the one before, of which there still are objects and traced programs: it gets a number.
    """
    kind.namesakes = ""  # type: ignore[attr-defined]
    number = 1
    while _KINDS.setdefault(name_of_kind(kind), kind) is not kind:
        number += 1
        kind.namesakes = f"#{number}"  # type: ignore[attr-defined]


def name_of_kind(kind: type) -> str:
    """The name of a class, with its module, and with its number where it is not the first of them.
    Plain enough for `torch.compile` to trace.
    """
    return f"{kind.__module__}.{kind.__qualname__}{kind.namesakes}"  # type: ignore[attr-defined]


def kind_named(name: str) -> type:
    """The class of a name."""
    try:
        return _KINDS[name]
    except KeyError:
        cure = "import the module that defines it first"
        if "#" in name:
            cure += (
                "; its number tells it from other classes of that name, and holds in the one "
                "process that defined them: name them apart, and trace the program again"
            )
        raise ValueError(f"nothing is known as {name!r}: {cure}") from None


def rebuilt(kind: type, values: list[Any]) -> Any:
    """An object of a class from the values of its `fields`, which were checked when it was first
    made.
    """
    made: Any = object.__new__(kind)
    for name, value in zip(kind.fields, values, strict=True):  # type: ignore[attr-defined]
        object.__setattr__(made, name, value)  # also of a frozen dataclass
    return made
