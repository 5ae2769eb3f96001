"""Patterns as unions of clauses: the rules by which each kind of pattern is compiled.

A clause is an intersection of simple things: limits (one interval a row), global rows, sets of
keys, a residue class, documents, and whatever is none of these and becomes a tile list. A new
pattern adds a rule to `_RULES`, or none: then it is a tile list, found by asking `contains` for
every tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ..patterns import (
    AllOf,
    AnyOf,
    BlockWindow,
    Causal,
    Fixed,
    Full,
    Global,
    Pattern,
    SameDocument,
    Strided,
    Summaries,
    Window,
)
from ..patterns.base import same_rank
from .heads import HeadWindows

__all__ = [
    "Clause",
    "TooManyClauses",
    "Within",
    "Without",
    "clauses_of",
    "document_extent",
    "intersections",
    "limits_of",
    "without_idle",
]

MOST_CLAUSES = 64


class TooManyClauses(Exception):
    """The pattern has no short form as clauses; a tile list serves it."""


class Within(Pattern):
    """The pair (i, j) exists when |i − j| ≤ reach: a learned reach as a pattern. Int `(B|1, H|1,
    N)`.
    """

    fields = ("reach",)

    def __init__(self, reach: Tensor) -> None:
        self.reach = reach

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        i, j = same_rank(i, j)
        return (j - i).abs() <= self.reach[:, :, (i - (m - n)).clamp(0, max(n - 1, 0))]


class Without(Pattern):
    """The pairs of a pattern that no other one has."""

    fields = ("pattern", "others")

    def __init__(self, pattern: Pattern, others: tuple[Pattern, ...]) -> None:
        self.pattern = pattern
        self.others = others

    def children(self) -> tuple[Pattern, ...]:
        return (self.pattern, *self.others)

    def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        inside = self.pattern.contains(i, j, n, m)
        for other in self.others:
            inside = inside & ~other.contains(i, j, n, m)
        return inside


@dataclass(frozen=True, slots=True)
class Clause:
    """An intersection; each field holds the patterns of one kind, all of which must hold."""

    limits: tuple[Pattern, ...] = ()
    rows: tuple[Global, ...] = ()
    columns: tuple[Pattern, ...] = ()
    stride: int = 1
    documents: tuple[SameDocument, ...] = ()
    tiles: tuple[Pattern, ...] = ()

    def __and__(self, other: Clause) -> Clause:
        return Clause(
            _joined(self.limits, other.limits),
            _joined(self.rows, other.rows),
            _joined(self.columns, other.columns),
            math.lcm(self.stride, other.stride),
            _joined(self.documents, other.documents),
            _joined(self.tiles, other.tiles),
        )

    def __le__(self, other: Clause) -> bool:
        """Does everything that the other asks for stand here too? Then the other has all these
        pairs.
        """
        return self.stride % other.stride == 0 and all(
            p in mine
            for mine, theirs in (
                (self.limits, other.limits),
                (self.rows, other.rows),
                (self.columns, other.columns),
                (self.documents, other.documents),
                (self.tiles, other.tiles),
            )
            for p in theirs
        )

    @property
    def is_interval(self) -> bool:
        """One interval a row around the query itself, and nothing else (but for which rows have
        it).
        """
        return not self.columns and self.stride == 1 and not self.documents and not self.tiles

    @property
    def is_columns(self) -> bool:
        """A set of keys within limits, for every row, and nothing else."""
        return bool(self.columns) and self == Clause(limits=self.limits, columns=self.columns)

    @property
    def holds_query(self) -> bool:
        """Does every row's interval hold the query's own position (unless it is empty)?"""
        return all(not isinstance(p, SameDocument) or p.query_ids is None for p in self.limits)

    def within(self, other: Clause) -> bool:
        """Is it plain from the limits that every row's interval lies in the other's?"""
        return not other.rows and all(p in self.limits for p in other.limits)


def clauses_of(pattern: Pattern) -> list[Clause]:
    """The pattern (no `PerHead`) as a union of clauses, none of which another one makes idle."""
    if isinstance(pattern, AnyOf):
        return without_idle([clause for p in pattern.patterns for clause in clauses_of(p)])
    if isinstance(pattern, AllOf):
        found = [Clause()]
        for p in pattern.patterns:
            found = intersections(found, clauses_of(p))
        return found
    rule = _RULES.get(type(pattern))
    return [Clause(tiles=(pattern,))] if rule is None else rule(pattern)


def intersections(left: list[Clause], right: list[Clause]) -> list[Clause]:
    """The union of clauses that is the intersection of two such unions."""
    return without_idle([a & b for a, b in product(left, right)])


def without_idle(clauses: list[Clause]) -> list[Clause]:
    """The clauses without those whose pairs another one has."""
    kept: list[Clause] = []
    for clause in clauses:
        if not any(clause <= other for other in kept):
            kept = [other for other in kept if not other <= clause] + [clause]
    if len(kept) > MOST_CLAUSES:
        raise TooManyClauses
    return kept


def limits_of(pattern: Pattern, i: Tensor, m: int) -> tuple[Tensor | None, Tensor | None]:
    """First and last key of every row under a limit, `(B|1, H|1, N)` or `(N,)`; None is unbounded.

    Of a document that does not lie together, its first and last key.
    """
    if isinstance(pattern, Causal):
        return None, i
    if isinstance(pattern, Window):
        low = None if pattern.left is None else i - pattern.left * pattern.dilation
        return low, None if pattern.right is None else i + pattern.right * pattern.dilation
    if isinstance(pattern, HeadWindows):
        return pattern.bounds(i, m)
    if isinstance(pattern, BlockWindow):
        own = i.div(pattern.block, rounding_mode="floor")
        return (own - pattern.left) * pattern.block, (own + pattern.right + 1) * pattern.block - 1
    if isinstance(pattern, Within):
        reach = pattern.reach.long()
        return i - reach, i + reach
    if isinstance(pattern, SameDocument):
        first, last, _ = document_extent(pattern, len(i), m)
        return first[:, None], last[:, None]
    raise TypeError(f"no limits for {pattern!r}")


def document_extent(pattern: SameDocument, n: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """First and last key of every row's document `(B, N)`, and whether it holds all between.

    By sorting, so that no id has to be small and no device has to be waited for.
    """
    rows, known, keys = pattern.sides(n, m)
    batch = max(rows.shape[0], keys.shape[0])
    rows, keys = rows.expand(batch, n).contiguous(), keys.expand(batch, m)
    sorted_ids, place = keys.sort(dim=1, stable=True)
    sorted_ids = sorted_ids.contiguous()
    start = torch.searchsorted(sorted_ids, rows)
    end = torch.searchsorted(sorted_ids, rows, right=True)
    known = known & (end > start)
    first = place.gather(1, start.clamp(max=m - 1))
    last = place.gather(1, (end - 1).clamp(min=0))
    together = ~known | (last - first == end - 1 - start)
    return torch.where(known, first, 0), torch.where(known, last, -1), together


def _joined(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> tuple[Any, ...]:
    return mine + tuple(p for p in theirs if p not in mine)


def _window(pattern: Window) -> list[Clause]:
    return [Clause(limits=(pattern,), stride=pattern.dilation)]


def _global(pattern: Global) -> list[Clause]:
    found = []
    if pattern.queries is not None:
        found.append(Clause(rows=(Global(queries=pattern.queries),)))
    if pattern.keys is not None:
        found.append(Clause(columns=(Global(keys=pattern.keys),)))
    if pattern.tokens is not None and pattern.rows:
        found.append(Clause(rows=(Global(pattern.tokens, columns=False),)))
    if pattern.tokens is not None and pattern.columns:
        found.append(Clause(columns=(Global(pattern.tokens, rows=False),)))
    return found


def _fixed(pattern: Fixed) -> list[Clause]:
    own = Clause(limits=(BlockWindow(pattern.stride, 0, 0),))
    if pattern.summary == 0:
        return [own]
    return [own, Clause(columns=(Summaries(pattern.stride, pattern.summary),))]


_RULES: dict[type[Pattern], Callable[[Any], list[Clause]]] = {
    Full: lambda p: [Clause()],
    Causal: lambda p: [Clause(limits=(p,))],
    Window: _window,
    HeadWindows: lambda p: [Clause(limits=(p,))],
    BlockWindow: lambda p: [Clause(limits=(p,))],
    Within: lambda p: [Clause(limits=(p,))],
    Global: _global,
    Strided: lambda p: [Clause(stride=p.stride)],
    Fixed: _fixed,
    Summaries: lambda p: [Clause(columns=(p,))],
    SameDocument: lambda p: [Clause(documents=(p,))],
}
