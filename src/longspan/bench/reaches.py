"""Made-up learned reaches, in three kinds: what a trained model may ask of a kernel.

How far tokens look decides which pairs exist; how the reaches lie along the text decides how many
tiles those pairs touch, which is what a kernel pays for.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["FAR_SHARE", "KINDS", "Kind", "reaches"]

Kind = Literal["smooth", "independent", "long-tailed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Of long-tailed reaches: how many tokens look far, and how much farther than the others.
FAR_SHARE = 0.1
FAR_TIMES = 8

# Smooth reaches change over about so many tokens: a paragraph.
PARAGRAPH = 256


def reaches(kind: Kind, heads: int, length: int, *, mean: float = 84.0, seed: int = 0) -> Tensor:
    """Reaches in tokens each side, float32 `(1, heads, length)`, the same for the same arguments.

    - `"smooth"`: along the text, neighbours look about equally far, as when a reach follows the
      kind of passage.
    - `"independent"`: drawn for every token, between half and one and a half times the mean.
    - `"long-tailed"`: one token in ten, anywhere, looks eight times as far as the others.

    Args:
        kind: one of `KINDS`.
        heads: each draws its own.
        length: tokens.
        mean: of every head, to within a few per cent; reaches are not cut to the length.
        seed: of the draw.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not mean >= 2:
        raise ValueError(f"mean must be at least 2, got {mean}")
    source = torch.Generator().manual_seed(seed)
    if kind == "smooth":
        found = _smooth(heads, length, source)
    else:
        found = 0.5 + torch.rand(heads, length, generator=source)
        if kind == "long-tailed":
            found = torch.where(_far(heads, length, source), FAR_TIMES * found, found)
    found = found / found.mean(-1, keepdim=True)
    return (mean * found).clamp(min=1)[None]


def _smooth(heads: int, length: int, source: torch.Generator) -> Tensor:
    """exp of noise that was averaged over a paragraph: never 0, at times twice the mean."""
    wide = min(PARAGRAPH, max(length // 4, 1))
    noise = torch.randn(heads, 1, length + 2 * (wide - 1), generator=source)
    kernel = torch.full((1, 1, wide), wide**-0.5)
    # Twice, so that not only the reach but its slope too has no jumps.
    once = F.conv1d(noise, kernel)
    twice = F.conv1d(once, kernel)[:, 0]
    centred = twice - twice.mean(-1, keepdim=True)
    return (0.5 * centred / centred.std(-1, correction=0, keepdim=True).clamp(min=1e-6)).exp()


def _far(heads: int, length: int, source: torch.Generator) -> Tensor:
    """Which tokens look far: exactly their share of each head, rounded."""
    order = torch.rand(heads, length, generator=source).argsort(-1).argsort(-1)
    return order < round(FAR_SHARE * length)
