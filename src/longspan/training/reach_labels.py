"""What is known of the tokens of a batch that their reach may follow: their kind, their place in
the text, and how far away the answer is.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from ..tasks import Batch, Task
from ..tasks.batch import padded
from ..tasks.squad import Squad
from ..tasks.squad_windows import Windows
from ..tasks.tokenizing import special_token
from .token_kinds import KINDS, pieces_of, words_of

__all__ = ["EDGES", "LEVELS", "NONE", "POSITIONS", "labels_of"]

# Of a token that something says nothing of.
NONE = -1

POSITIONS = 20

# Distances are counted together up to and with each of these, and those beyond the last.
EDGES = (0, 2, 4, 8, 16, 32, 64, 128)
DISTANCES = (
    "0",
    *(f"{low + 1}–{high}" for low, high in pairwise(EDGES)),
    f"over {EDGES[-1]}",
)
SHARES = tuple(f"{100 * n // POSITIONS}–{100 * (n + 1) // POSITIONS} %" for n in range(POSITIONS))

# What there is to know, and what its labels, which are numbers, stand for.
LEVELS: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "word": ("in the question", "not in the question"),
    "answer": ("of the answer", "other text"),
    "distance": DISTANCES,
    "position": SHARES,
    "begin": DISTANCES,
    "end": DISTANCES,
}


def labels_of(task: Task, batch: Batch) -> dict[str, Tensor]:
    """Labels of dev examples by the names of `LEVELS`, int64 `(B, N)` each, on the CPU as the batch
    is; what the task does not tell is left out.

    Kinds are told by `squad`; distances to the answer by tasks whose answers are spans. Without
    spans, the text is all that is real; with them, all in which an answer may lie.
    """
    text = batch.real if batch.source is None else batch.source["real"]
    if "allowed" in batch.targets:
        # The first token is where "no answer" is said.
        text = text & batch.targets["allowed"] & (torch.arange(text.shape[1]) > 0)
    found = _places(text)
    if "start" in batch.targets:
        found |= _to_answer(text, batch.targets["start"], batch.targets["end"])
    if isinstance(task, Squad) and isinstance(task.dev, Windows):
        found |= _kinds(task.dev, batch)
    return found


def _places(text: Tensor) -> dict[str, Tensor]:
    """Where in its text a token stands; a text is one stretch of its row."""
    at = torch.arange(text.shape[1])
    count = text.sum(-1, keepdim=True)
    after = at - text.int().argmax(-1, keepdim=True)
    found = {
        "position": after * POSITIONS // count.clamp(min=1),
        "begin": _binned(after),
        "end": _binned(count - 1 - after),
    }
    return {name: own.where(text, NONE) for name, own in found.items()}


def _to_answer(text: Tensor, start: Tensor, end: Tensor) -> dict[str, Tensor]:
    """How many tokens away the answer is, in rows that have one."""
    at = torch.arange(text.shape[1])
    far = torch.maximum(start[:, None] - at, at - end[:, None]).clamp(min=0)
    there = text & (start > 0)[:, None]
    return {
        "distance": _binned(far).where(there, NONE),
        "answer": (far > 0).long().where(there, NONE),
    }


def _binned(distance: Tensor) -> Tensor:
    return torch.bucketize(distance, torch.tensor(EDGES))


def _kinds(windows: Windows, batch: Batch) -> dict[str, Tensor]:
    """The kinds of all tokens, and which words of the text are also the question's."""
    tokenizer = windows.shape.tokenizer
    marks = {special_token(tokenizer, what) for what in ("first", "between")}
    kinds, words = [], []
    for row, number in zip(batch.tokens.tolist(), batch.numbers, strict=True):
        question = windows.question_of(number)
        asked = words_of(question.text)
        places = windows.characters(number)
        inside = [place for place in places if place is not None]
        pieces = iter(pieces_of(windows.source.contexts[question.context], inside))
        own, same = [], []
        for token, place in zip(row, places, strict=False):
            if place is None:
                own.append(KINDS.index("mark" if token in marks else "question"))
                same.append(NONE)
            else:
                piece = next(pieces)
                own.append(KINDS.index(piece.kind))
                same.append(int(piece.word not in asked) if piece.telling else NONE)
        kinds.append(torch.tensor(own))
        words.append(torch.tensor(same))
    return {"kind": padded(kinds, NONE), "word": padded(words, NONE)}
