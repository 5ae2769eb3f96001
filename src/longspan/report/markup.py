"""HTML and SVG from Python values: what is not markup already is escaped, without exception."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Markup", "embedded_json", "escaped", "joined", "tag"]

# Elements of HTML that have no end.
VOID = frozenset({"br", "hr", "img", "input", "meta"})


class Markup(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """A text as HTML shows it; markup stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text)))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other, each escaped unless it is markup."""
    return Markup(escaped(between).join(escaped(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` and `aria_label` stand for `class` and `aria-label`.

    An attribute that is None or False is left out, one that is True has no value.
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written += f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def embedded_json(value: Any) -> Markup:
    """JSON for the inside of a script element, where only `<` could end it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
