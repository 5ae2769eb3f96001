"""Every pattern in one picture, with the learned windows beside them."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .functional import attention_map
from .patterns import Global, Pattern
from .patterns.drawing import check_suffix, draw_panel, new_figure, save_figure
from .patterns.expressions import parse_pattern
from .weights import Bell, Weight, variance_of

__all__ = ["EXAMPLES", "Panel", "example_pattern", "example_values", "panels", "save_gallery"]

# What `longspan draw NAME` draws: the expressions are as a user would type them.
EXAMPLES: dict[str, str] = {
    "full": "Full()",
    "causal": "Causal()",
    "window": "Window(3, 3)",
    "dilated-window": "Window(2, 2, dilation=3)",
    "block-window": "BlockWindow(4, 1, 1)",
    "global": "Global(2)",
    "random": "Random(2, block=3)",
    "strided": "Strided(4)",
    "fixed": "Fixed(6, 2)",
    "same-document": "SameDocument(ids)",
    "mask": "Mask(allowed)",
    "per-head": "PerHead([Window(2, 2), Strided(6)])",
    "longformer": "longformer(2, tokens=1)",
    "bigbird": "bigbird(length, block=2, drawn=1)",
    "sparse-strided": "sparse_strided(6)",
    "sparse-fixed": "sparse_fixed(6, summary=2)",
}


class Panel(NamedTuple):
    """One picture of the gallery.

    Attributes:
        name: its title.
        code: what makes it.
        values: how much each pair counts before it is normalised, float `(H, n, n)` in [0, 1];
            0 where the pair does not exist.
    """

    name: str
    code: str
    values: Tensor

    @property
    def share(self) -> float:
        """The share of the pairs that exist."""
        return float((self.values > 0).double().mean())


def example_values(length: int) -> dict[str, int | Tensor]:
    """What the names in an expression stand for, for so many tokens.

    `length` is their number, `ids` are three documents of different lengths, and `allowed` is a
    mask that comes from elsewhere: the moves of a knight between the squares of a chessboard.
    """
    return {"length": length, "ids": _documents(length), "allowed": _knight(length)}


def example_pattern(text: str, length: int) -> Pattern:
    """The pattern of a name in `EXAMPLES`, or of an expression."""
    name = text.strip().lower().replace("_", "-")
    if name not in EXAMPLES and name.replace("-", "").isalnum():
        raise ValueError(
            f"there is no pattern {text!r}: choose one of {', '.join(EXAMPLES)}, "
            "or write an expression such as 'Window(3, 3) | Global(1)'"
        )
    return parse_pattern(EXAMPLES.get(name, text), example_values(length))


def panels(length: int) -> list[Panel]:
    """Every pattern and the learned windows, for so many tokens."""
    found = []
    for name, code in EXAMPLES.items():
        mask = example_pattern(name, length).dense(length)
        found.append(Panel(name, code, mask[0].float()))
    variance = variance_of(_reaches(length), 0.5)
    for name, code, bell in (
        ("learned-window", "Bell(v, threshold=0.5)", Bell(variance, threshold=0.5)),
        (
            "learned, global",
            "Bell(v, threshold=0.5, exempt=Global(1))",
            Bell(variance, threshold=0.5, exempt=Global(1)),
        ),
    ):
        found.append(Panel(name, code, _weights(bell, length)))
    return found


def save_gallery(path: str | Path, *, length: int = 24, columns: int = 6) -> None:
    """Saves all panels as one picture, .png or .svg, on white: at home on light and dark pages."""
    check_suffix(path)
    shown = panels(length)
    # In points. Whole numbers for the cells' corners make an SVG a third of the size.
    side, step, line = 4 * length, 4 * length + 12, 4 * length + 38
    width, height = columns * step + 8, -(-len(shown) // columns) * line + 8
    figure = new_figure(width / 72, height / 72)
    for place, panel in enumerate(shown):
        row, column = divmod(place, columns)
        left, bottom = 10 + column * step, height - 20 - side - row * line
        axis = figure.add_axes((left / width, bottom / height, side / width, side / height))
        draw_panel(axis, panel.values)
        axis.set_title(panel.name, loc="left", fontsize=7.5, fontweight="bold", pad=3)
        axis.set_title(f"{panel.share:.0%}", loc="right", fontsize=7, color="#5f6b7a", pad=3)
        code = textwrap.fill(panel.code, 25)
        axis.set_xlabel(code, fontsize=6.2, family="monospace", color="#39424e", labelpad=3)
    save_figure(figure, path)


def _documents(length: int) -> Tensor:
    """Ids of three documents: a third, a half, and the rest."""
    place = torch.arange(length)
    return (place >= length // 3).long() + (place >= length // 3 + length // 2)


def _knight(length: int) -> Tensor:
    """Between which squares a knight moves, eight in a row of the board; bool `(1, 1, n, n)`."""
    square = torch.arange(length)
    down = (square[:, None] // 8 - square // 8).abs()
    across = (square[:, None] % 8 - square % 8).abs()
    return (down * across == 2)[None, None]


def _reaches(length: int) -> Tensor:
    """Made-up reaches, mostly short: a picture of what a model may learn."""
    source = random.Random(3)
    return torch.tensor([float(source.choice((1, 1, 2, 2, 3, 4, 6, 9))) for _ in range(length)])


def _weights(weight: Weight, length: int) -> Tensor:
    """What a weight alone does: attention where all tokens are alike, each row scaled to 1."""
    alike = torch.zeros(1, 1, length, 1)
    attention = attention_map(alike, alike, weight=weight)[0]
    return attention / attention.amax(-1, keepdim=True)
