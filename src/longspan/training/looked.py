"""What a model looked at when it found an answer, in the characters of question and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..tasks.squad_windows import Found, Windows
from .learner import Learner, on_device
from .measuring import watched
from .sight import looks_at, sight_of

__all__ = ["Looked", "Piece", "Seen", "looked_at"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a token of an answer sees of the text in one head.

    Attributes:
        layer: from 0.
        head: from 0.
        token: the token's own text.
        start: the first character of the text that it sees.
        end: after the last one.
        reach: how many tokens it looks to each side.
    """

    layer: int
    head: int
    token: str
    start: int
    end: int
    reach: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A word that was looked at.

    Attributes:
        text: the word; a mark between question and text has its name.
        part: `"text"`, `"question"` or `"mark"`: where it stands.
        start: its first character there; −1 for a mark.
        end: after its last one.
        weight: its share of what the answer's tokens look at, over all layers and heads; all
            pieces together have 1.
    """

    text: str
    part: str
    start: int
    end: int
    weight: float


@dataclass(frozen=True, slots=True)
class Looked:
    """What the first and the last token of an answer looked at.

    Tokens of the question are global where the task says so: they are seen from everywhere, and are
    not counted in what a token sees of the text.

    Attributes:
        start: the first character of the text that was read together with the question when the
            answer was found; long texts are read in parts.
        end: after the last one.
        seen: for each layer, head and token what it sees of the text.
        pieces: what was looked at most, the most first.
    """

    start: int
    end: int
    seen: tuple[Seen, ...]
    pieces: tuple[Piece, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        return asdict(self)

    def __repr__(self) -> str:
        lines = [f"read characters {self.start} to {self.end} with the question; looked most at"]
        for piece in self.pieces:
            where = "mark" if piece.part == "mark" else f"{piece.part} {piece.start}–{piece.end}"
            lines.append(f"  {piece.weight:6.1%}  {piece.text!r}, {where}")
        lines.append("and saw of the text")
        for own in self.seen:
            lines.append(
                f"  layer {own.layer} head {own.head}  {own.token!r}: characters {own.start} to "
                f"{own.end}, reach {own.reach:.1f} tokens"
            )
        return "\n".join(lines)


@torch.no_grad()
def looked_at(learner: Learner, windows: Windows, found: Found, top: int) -> Looked:
    """What the model looks at in the window that an answer was found in.

    Args:
        top: how many pieces are wanted.
    """
    device = next(learner.parameters()).device
    batch, padded = on_device(windows.batch([found.window]), device)
    with watched(learner) as called, learner.autocast():
        learner.objective.scores(learner, batch, padded)
    places = windows.characters(found.window)
    text = windows.source.contexts[windows.question_of(found.window).context]
    inside = [at for at, place in enumerate(places) if place is not None]
    rows = list(dict.fromkeys((found.first, found.last)))
    seen, weights, heads = [], torch.zeros(len(places), device=device), 0
    for layer, (mechanism, (q, k, v, setting)) in enumerate(called):
        at = torch.tensor(rows, device=device)
        for head, sight in enumerate(sight_of(mechanism, q, k.shape[2], setting, at)):
            for row, low, high, reach in zip(rows, *sight, strict=True):
                first, last = max(low, inside[0]), min(high, inside[-1])
                span = _joined(places, row, row), _joined(places, first, last)
                seen.append(Seen(layer, head, text[slice(*span[0])], *span[1], reach))
        weights += looks_at(mechanism, q, k, v, setting, rows).mean(1).sum(0)
        heads += q.shape[1]
    pieces = _pieces(windows, found.window, (weights / max(heads, 1)).tolist())
    pieces.sort(key=lambda piece: -piece.weight)
    whole = _joined(places, inside[0], inside[-1])
    return Looked(*whole, tuple(seen), tuple(pieces[:top]))


def _joined(places: Sequence[tuple[int, int] | None], first: int, last: int) -> tuple[int, int]:
    """The characters from one token of the text to another."""
    low, high = places[first], places[last]
    assert low is not None and high is not None
    return low[0], high[1]


def _pieces(windows: Windows, number: int, weights: list[float]) -> list[Piece]:
    """All words and marks of a window, with the weights of their tokens."""
    question = windows.question_of(number)
    text = windows.source.contexts[question.context]
    asked = windows.shape.tokenizer.encode(question.text, add_special_tokens=False).offsets
    asked = asked[: windows.shape.question_length]
    tokens = windows.batch([number]).tokens[0].tolist()
    names = windows.shape.tokenizer.id_to_token
    found: list[Piece] = []
    for at, place in enumerate(windows.characters(number)):
        if place is not None:
            _add(found, text, "text", place, weights[at])
        elif 1 <= at <= len(asked):
            _add(found, question.text, "question", asked[at - 1], weights[at])
        else:
            found.append(Piece(names(tokens[at]), "mark", -1, -1, weights[at]))
    return found


def _add(found: list[Piece], text: str, part: str, place: tuple[int, int], weight: float) -> None:
    """One more token, which goes on with the word before it or begins one."""
    begin, end = place
    last = found[-1] if found else None
    if last is not None and last.part == part and _goes_on(text, last, begin):
        end = max(end, last.end)
        found[-1] = Piece(text[last.start : end], part, last.start, end, last.weight + weight)
    else:
        found.append(Piece(text[begin:end], part, begin, end, weight))


def _goes_on(text: str, last: Piece, begin: int) -> bool:
    """Whether a token that begins there is of the same word as the piece before it. A letter can be
    several tokens, and a blank before a word one of its own, without a character.
    """
    if begin < last.end or last.start == last.end == begin:
        return True
    return begin == last.end and text[begin - 1].isalnum() and text[begin : begin + 1].isalnum()
