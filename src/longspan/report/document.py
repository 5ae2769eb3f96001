"""A document whose tokens show what they see: its data, and the elements that the script fills."""

from __future__ import annotations

import base64
import math
import struct
import unicodedata
from collections.abc import Sequence
from typing import Any

from . import captions
from .looks import Head, Look
from .markup import Markup, embedded_json, joined, tag
from .numbers import plain
from .pictures import length_of, looks_of
from .setups import Setup

__all__ = ["document_section", "shown_tokens"]

MOST_BYTES = 750_000  # of all documents in a page
MOST_VIEWS = 8
FEWEST_TOKENS = 100
LARGEST = 32_767  # that two bytes hold
SPACES = ("▁", "Ġ")  # how tokenizers write a space before a word


def document_section(setups: Sequence[Setup]) -> Markup | None:
    """The document view of all setups that have one; None where none has."""
    chosen = looks_of(setups)[:MOST_VIEWS]
    if not chosen:
        return None
    data = _data(chosen, 1.0)
    size = len(embedded_json(data))
    if size > MOST_BYTES:
        data = _data(chosen, MOST_BYTES / size)
    choices = [tag("option", setup.name, value=place) for place, (setup, _) in enumerate(chosen)]
    return joined(
        [
            tag("script", embedded_json(data), type="application/json", id="documents"),
            tag("noscript", tag("p", "This view needs JavaScript.")),
            tag(
                "div",
                _choice("view", "Setup", choices),
                _choice("layer", "Layer", []),
                _choice("head", "Head", []),
                class_="choices",
            ),
            _legend(),
            tag(
                "div",
                tag(
                    "div",
                    id="tokens",
                    role="listbox",
                    tabindex=0,
                    aria_label="Tokens of the document; arrow keys move between them",
                    aria_describedby="sight",
                ),
                tag(
                    "div",
                    tag("p", "Point at a token.", id="sight", aria_live="polite"),
                    tag(
                        "div",
                        id="reaches",
                        class_="scroll",
                        tabindex=0,
                        role="region",
                        aria_label="Reach of the chosen token in each layer and head",
                    ),
                    class_="aside",
                ),
                class_="reader",
            ),
            tag(
                "figure",
                tag("canvas", id="map", width=480, height=480, role="img", aria_label="Map"),
                tag(
                    "figcaption",
                    captions.MAP,
                ),
                class_="map",
            ),
        ]
    )


def shown_tokens(tokens: Sequence[str]) -> list[str]:
    """Tokens as a reader expects them: spaces where the text has them, nothing invisible."""
    marked = any(token.startswith(SPACES) for token in tokens)
    pieces = any(token.startswith("##") for token in tokens)
    single = all(len(token) == 1 for token in tokens)
    spaced = any(token != token.strip() or not token for token in tokens)
    shown = []
    for token in tokens:
        if marked:
            for space in SPACES:
                token = token.replace(space, " ")
            token = token.replace("Ċ", "\n")
        elif pieces:
            token = token[2:] if token.startswith("##") else f" {token}"
        elif not single and not spaced:
            token = f" {token}"
        shown.append("".join(_visible(character) for character in token) or "∅")
    return shown


def _visible(character: str) -> str:
    if character == "\n":
        return "↵\n"
    if character == "\t":
        return "⇥"
    # Control characters and those that turn the direction of writing would change other tokens.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"‹{ord(character):04X}›"
    return character


def _choice(name: str, label: str, options: Sequence[Markup]) -> Markup:
    return tag("label", f"{label} ", tag("select", joined(options), id=name))


def _legend() -> Markup:
    return tag(
        "p",
        tag("span", "short reach", id="reach-low"),
        tag("i", class_="ramp", role="img", aria_label="Scale of colours"),
        tag("span", "long reach", id="reach-high"),
        tag("span", "seen", class_="sample seen"),
        tag("span", "global", class_="sample whole"),
        tag("span", "question", class_="sample asked"),
        tag("span", "answer", class_="sample answer"),
        tag("span", "chosen", class_="sample chosen"),
        class_="legend",
    )


def _data(chosen: Sequence[tuple[Setup, Look]], share: float) -> dict[str, Any]:
    """The views, and the texts they are of; a share of each text's tokens, from its beginning."""
    texts: list[dict[str, Any]] = []
    views = []
    for setup, look in chosen:
        n = length_of(look)
        shown = n if share >= 1 else min(n, max(FEWEST_TOKENS, math.floor(n * share)))
        text: dict[str, Any] = {
            "tokens": shown_tokens(look.tokens[:shown]),
            "question": _places(look.question or [], shown),
            "global": _places(look.is_global, shown),
            "globals": sum(look.is_global[:n]),
            "of": n,
        }
        if text not in texts:
            texts.append(text)
        views.append(
            {
                "name": setup.name,
                "text": texts.index(text),
                "answer": _answer(look.answer, text["tokens"]),
                "layers": [
                    {
                        "mechanism": layer.mechanism,
                        "heads": [_packed_head(head, n, shown) for head in layer.heads],
                    }
                    for layer in look.layers
                ],
            }
        )
    # The more the tokens differ, the more there is to see: that view is the first.
    distinct = [
        len(
            {
                round(reach, 1)
                for layer in look.layers
                for head in layer.heads
                for reach in head.reach
            }
        )
        for _, look in chosen
    ]
    return {"texts": texts, "views": views, "first": distinct.index(max(distinct))}


def _places(flags: Sequence[bool], shown: int) -> list[int]:
    return [place for place, flag in enumerate(flags[:shown]) if flag]


def _answer(answer: dict[str, Any] | None, tokens: Sequence[str]) -> dict[str, Any] | None:
    """An answer's text, its tokens where it names them, and the rest of it that is short."""
    if not answer:
        return None
    rest = dict(answer)
    text, start, end = rest.pop("text", None), rest.get("start"), rest.get("end")
    found: dict[str, Any] = {}
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < len(tokens):
        found["start"], found["end"] = rest.pop("start"), rest.pop("end")
        text = "".join(tokens[start : end + 1]) if text is None else text
    if isinstance(text, str):
        found["text"] = text.strip()[:300]
    short = {k: v for k, v in rest.items() if isinstance(v, (str, int, float))}
    found["rest"] = [
        f"{name} {plain(value, 4) if isinstance(value, float) else str(value)[:100]}"
        for name, value in short.items()
    ]
    return found


def _packed_head(head: Head, n: int, shown: int) -> dict[str, Any]:
    """A head's reaches, and its intervals where they are not simply the reach to both sides."""
    unit = max(0.1, max(head.reach[:n], default=0.0) / LARGEST)
    reach = [math.floor(value / unit + 1e-6) for value in head.reach[:shown]]
    sides = [math.floor(units * unit + 1e-6) for units in reach]
    left = [place - head.low[place] for place in range(shown)]
    right = [head.high[place] - place for place in range(shown)]
    found: dict[str, Any] = {"reach": _packed(reach), "unit": unit}
    if left != [min(side, place) for place, side in enumerate(sides)]:
        found["left"] = _packed(left)
    if right != [min(side, n - 1 - place) for place, side in enumerate(sides)]:
        found["right"] = _packed(right)
    return found


def _packed(values: Sequence[int]) -> int | str:
    """Whole numbers in two bytes each, as base64; a single one where all are the same."""
    if len(set(values)) == 1:
        return values[0]
    kept = [max(-LARGEST - 1, min(LARGEST, value)) for value in values]
    return base64.b64encode(struct.pack(f"<{len(kept)}h", *kept)).decode()
