"""Patterns of the heads as one, where heads differ in their windows alone: a layout has intervals
for every head, so that they need no layouts of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..patterns import AllOf, AnyOf, Causal, Full, Pattern, Window

__all__ = ["HeadWindows", "of_all_heads"]

# To the left and to the right; None is without an end.
Sides = tuple[int | None, int | None]


class HeadWindows(Pattern):
    """A window for every head."""

    fields = ("sides",)

    def __init__(self, sides: tuple[Sides, ...]) -> None:
        self.sides = sides

    def heads_apart(self) -> int:
        return len(self.sides)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        each = [Window(left, right).contains(i, j, n, m) for left, right in self.sides]
        return torch.cat(each, dim=1)

    def bounds(self, i: Tensor, m: int) -> tuple[Tensor, Tensor]:
        """First and last key of every head's rows, `(1, H, N)`."""
        first = [torch.zeros_like(i) if left is None else i - left for left, _ in self.sides]
        last = [
            torch.full_like(i, m - 1) if right is None else i + right for _, right in self.sides
        ]
        return torch.stack(first)[None], torch.stack(last)[None]


def of_all_heads(patterns: Sequence[Pattern]) -> Pattern | None:
    """One pattern that is for every head its own, if they differ in windows alone."""
    first, *others = patterns
    if all(other == first for other in others):
        return first
    sides = [own for own in map(_sides, patterns) if own is not None]
    if len(sides) == len(patterns):
        return HeadWindows(tuple(sides))
    for kind in (AnyOf, AllOf):
        terms = [own.patterns for own in patterns if isinstance(own, kind)]
        if len(terms) == len(patterns) and len({len(own) for own in terms}) == 1:
            found = [own for own in map(of_all_heads, zip(*terms, strict=True)) if own is not None]
            return kind(found) if len(found) == len(terms[0]) else None
    return None


def _sides(pattern: Pattern) -> Sides | None:
    if isinstance(pattern, Full):
        return None, None
    if isinstance(pattern, Causal):
        return None, 0
    if isinstance(pattern, Window) and pattern.dilation == 1:
        return pattern.left, pattern.right
    return None
