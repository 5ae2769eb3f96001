"""From clauses to pieces: one way to exist as sets of pairs that share none.

1. Clauses that are one interval around the query merge into one interval a row.
2. Every other clause loses that interval: what is left of it and what is right of it are two
intervals.
3. Keys that a set of columns already has are struck out of the pieces after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..patterns import AllOf, AnyOf, Causal, Global, Pattern, Summaries, Window
from .clauses import (
    Clause,
    Within,
    clauses_of,
    document_extent,
    intersections,
    limits_of,
)
from .parts import ALL_ACT, Order

__all__ = ["Choice", "Frame", "NeedsTiles", "Piece", "emptied", "pieces_of", "residue_order"]


class NeedsTiles(Exception):
    """The pattern has no disjoint parts; the message says why."""


class Choice(NamedTuple):
    """One way to exist: each weight either exempts the pair, or has it within its reach."""

    active: int
    reaches: tuple[Tensor, ...]
    inside: tuple[Pattern, ...]
    outside: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Pairs by positions: row r has the keys low … high (inclusive) that the rest allows."""

    clause: Clause
    low: Tensor
    high: Tensor
    columns: Tensor | None = None
    most_columns: int = 0
    struck: Tensor | None = None
    tiles: Pattern | None = None
    active: int = ALL_ACT
    # As `Part.band`; rows that are global do not count.
    band: tuple[int, int] | None = None
    # Global rows that are taken out of it, as in clauses.
    lost: tuple[tuple[Global, ...], ...] = ()


class Frame:
    """The sizes and the device of one compilation, and which rows turned out to be global."""

    def __init__(self, n: int, m: int, device: torch.device) -> None:
        self.n, self.m, self.device = n, m, device
        self.i = torch.arange(m - n, m, device=device)
        self.readable = device.type == "cpu"
        self.long_rows: Tensor | None = None
        self.row_clauses: list[tuple[Global, ...]] = []
        self.most_rows = 0
        self.key_orders: dict[tuple[int, int], Order] = {}

    def bounds(self, clause: Clause) -> tuple[Tensor, Tensor]:
        """First and last key of every row under the clause's limits, documents and rows; (0, −1) is
        empty.
        """
        low = torch.zeros(1, 1, self.n, dtype=torch.int64, device=self.device)
        high = low + (self.m - 1)
        for limit in clause.limits + clause.documents:
            first, last = limits_of(limit, self.i, self.m)
            low = low if first is None else torch.maximum(low, first)
            high = high if last is None else torch.minimum(high, last)
        rows = self.rows(clause)
        if rows is not None:
            high = torch.where(rows[:, None], high, -1)
            self.long_rows = rows if self.long_rows is None else self.long_rows | rows
            self.row_clauses.append(clause.rows)
            self.most_rows += self.n if clause.rows[0].count is None else clause.rows[0].count
        return emptied(low, high)

    def rows(self, clause: Clause) -> Tensor | None:
        """Which query rows a clause is for, bool `(B|1, n)`, or None for all."""
        found = None
        for pattern in clause.rows:
            rows = pattern.global_rows(self.n, self.m, self.device)
            assert rows is not None
            found = rows if found is None else found & rows
        return found

    def has_long_rows(self, piece: Piece) -> bool:
        """Whether a piece may have pairs in global rows."""
        return not all(
            any(all(p in rows for p in lost) for lost in piece.lost) for rows in self.row_clauses
        )

    def columns(self, clause: Clause) -> tuple[Tensor | None, int]:
        """Which keys a clause is for, bool `(B|1, m)`, or None for all; and at most how many."""
        found: Tensor | None = None
        most = self.m
        for pattern in clause.columns:
            if isinstance(pattern, Summaries):
                place = torch.arange(self.m, device=self.device)
                keys = (place % pattern.stride >= pattern.stride - pattern.summary)[None]
                count = -(-self.m // pattern.stride) * pattern.summary
            else:
                assert isinstance(pattern, Global)
                columns = pattern.global_columns(self.n, self.m, self.device)
                assert columns is not None
                keys = columns
                count = self.m if pattern.count is None else pattern.count
            most = min(most, count)
            found = keys if found is None else found & keys
        return found, most

    def apart(self, clause: Clause) -> bool:
        """Do the clause's documents need their ids compared, because they do not lie together?"""
        if not self.readable:
            return bool(clause.documents)
        extents = (document_extent(d, self.n, self.m) for d in clause.documents)
        return not all(bool(together.all()) for _, _, together in extents)

    def gathered(self, mask: Tensor, most: int) -> Order:
        """The places at which bool `(B|1, L)` is True, in order, each sample's first; at most so
        many.
        """
        most = int(mask.sum(1).max()) if self.readable else min(most, mask.shape[1])
        first = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        return Order(most, first[:, :most])

    def key_order(self, piece: Piece) -> Order:
        """The order of a piece's keys: one object for the same order, by which kernels know it."""
        stride = piece.clause.stride
        known = id(piece.columns), stride
        if known not in self.key_orders:
            if piece.columns is not None:
                order = self.gathered(piece.columns, piece.most_columns)
            elif stride > 1:
                order = residue_order(torch.arange(self.m, device=self.device), stride)
            else:
                order = Order(self.m)
            self.key_orders[known] = order
        return self.key_orders[known]


def residue_order(positions: Tensor, stride: int) -> Order:
    index = (positions % stride).argsort(stable=True)
    return Order(len(positions), index[None], stride)


def pieces_of(pattern: Pattern, choice: Choice, frame: Frame) -> list[Piece]:
    """The disjoint pieces of one way to exist."""
    clauses = clauses_of(pattern)
    for exempt in choice.inside:
        clauses = intersections(clauses, clauses_of(exempt))
    if choice.reaches:
        limits = tuple(Within(reach) for reach in choice.reaches)
        clauses = intersections(clauses, [Clause(limits=limits)])
    pieces = _disjoint([_settled(c, frame) for c in clauses], frame)
    for exempt in choice.outside:
        for clause in clauses_of(exempt):
            pieces = [left for piece in pieces for left in _less(piece, clause, frame)]
    return [replace(piece, active=choice.active) for piece in pieces]


def _settled(clause: Clause, frame: Frame) -> Clause:
    """Documents that lie together are an interval a row, and need no comparing. A stride that leads
    out of the text from everywhere leaves each query its own position, as every larger one does.
    """
    longest = max(frame.n, frame.m)
    clause = replace(clause, stride=longest) if clause.stride > longest else clause
    if not clause.documents or frame.apart(clause):
        return clause
    return replace(clause, documents=(), limits=clause.limits + clause.documents)


def _less(piece: Piece, clause: Clause, frame: Frame) -> list[Piece]:
    """A piece without the pairs of a clause that is global rows, a set of keys, or an interval."""
    plain = Clause(limits=clause.limits)
    if clause == Clause():
        return []
    if clause == Clause(rows=clause.rows):
        rows = frame.rows(clause)
        assert rows is not None
        low, high = emptied(piece.low, torch.where(rows[:, None], -1, piece.high))
        return [replace(piece, low=low, high=high, lost=(*piece.lost, clause.rows))]
    if clause == Clause(columns=clause.columns):
        return [_strike(piece, frame.columns(clause)[0])]
    if clause == plain:
        return _minus(piece, *frame.bounds(clause))
    raise NeedsTiles("an exempt pattern is more than global tokens and windows")


def _strike(piece: Piece, keys: Tensor | None) -> Piece:
    assert keys is not None
    return replace(piece, struck=keys if piece.struck is None else piece.struck | keys)


def _minus(piece: Piece, low: Tensor, high: Tensor) -> list[Piece]:
    """What a piece has left of an interval, and right of it."""
    empty = high < low
    before = torch.where(empty, piece.high, torch.minimum(piece.high, low - 1))
    after = torch.where(empty, piece.high + 1, torch.maximum(piece.low, high + 1))
    left, right = emptied(piece.low, before), emptied(after, piece.high)
    return [
        replace(piece, low=left[0], high=left[1], band=None),
        replace(piece, low=right[0], high=right[1], band=None),
    ]


def emptied(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Empty rows as (0, −1), so that no bound is out of range."""
    low, high = torch.broadcast_tensors(low, high)
    empty = high < low
    return torch.where(empty, 0, low), torch.where(empty, -1, high)


def _joined(a: Piece, b: Piece) -> Piece:
    """One interval for two that both hold the query itself; an empty one adds nothing."""
    no_a, no_b = a.high < a.low, b.high < b.low
    low = torch.where(no_a, b.low, torch.where(no_b, a.low, torch.minimum(a.low, b.low)))
    common = tuple(p for p in a.clause.limits if p in b.clause.limits)
    rows = a.clause.rows + b.clause.rows if a.clause.rows and b.clause.rows else ()
    clause = replace(a.clause, limits=common, rows=rows)
    band = None
    if bool(a.clause.rows) != bool(b.clause.rows):
        band = b.band if a.clause.rows else a.band
    elif a.band is not None and b.band is not None:
        band = max(a.band[0], b.band[0]), max(a.band[1], b.band[1])
    return replace(a, clause=clause, low=low, high=torch.maximum(a.high, b.high), band=band)


def _band(clause: Clause, n: int, m: int) -> tuple[int, int] | None:
    """How far every row looks to the left and to the right, if a clause says no more than that."""
    if clause != Clause(limits=clause.limits) or m < n:
        return None
    left, right = m - 1, n - 1
    for limit in clause.limits:
        if isinstance(limit, Causal):
            right = 0
        elif isinstance(limit, Window) and limit.dilation == 1:
            left = left if limit.left is None else min(left, limit.left)
            right = right if limit.right is None else min(right, limit.right)
        else:
            return None
    return left, right


def _disjoint(clauses: list[Clause], frame: Frame) -> list[Piece]:
    """Clauses of one union as pieces that share no pair."""
    centre: Piece | None = None
    others: list[Piece] = []
    for clause in clauses:
        piece = Piece(clause, *frame.bounds(clause), band=_band(clause, frame.n, frame.m))
        if clause.is_interval and clause.holds_query:
            centre = piece if centre is None else _joined(centre, piece)
            continue
        if clause.columns and (clause.stride > 1 or clause.documents or clause.tiles):
            raise NeedsTiles(f"{_words(clause)} is a set of keys and something else")
        if clause.tiles and (clause.stride > 1 or clause.documents):
            raise NeedsTiles(f"{_words(clause)} is a tile list and something else")
        if clause.columns:
            keys, most = frame.columns(clause)
            piece = replace(piece, columns=keys, most_columns=most)
        if clause.tiles:
            tiles = clause.tiles[0] if len(clause.tiles) == 1 else AllOf(clause.tiles)
            piece = replace(piece, tiles=tiles)
        others = _added(others, piece)
    others.sort(key=lambda p: (p.columns is None, bool(p.clause.rows), len(p.clause.limits)))
    for place, piece in enumerate(others):
        for earlier in others[:place]:
            if not earlier.clause.is_columns or not piece.clause.within(earlier.clause):
                raise NeedsTiles(
                    f"{_words(earlier.clause)} and {_words(piece.clause)} overlap, "
                    "and no order of keys takes them apart"
                )
            piece = _strike(piece, earlier.columns)
        others[place] = piece
    if centre is None:
        return others
    halves: list[Piece] = []
    for piece in others:
        if piece.clause.is_columns and centre.clause.within(piece.clause):
            # One bit a key is cheaper than the set of keys in two halves.
            centre = _strike(centre, piece.columns)
            halves.append(piece)
        else:
            halves += _minus(piece, centre.low, centre.high)
    return [centre, *halves]


def _added(pieces: list[Piece], new: Piece) -> list[Piece]:
    """The pieces with one more, joined to one that differs only in its columns, its tiles or its
    interval.
    """
    for place, old in enumerate(pieces):
        a, b = old.clause, new.clause
        joined = None
        if replace(a, columns=()) == replace(b, columns=()) and a.columns and b.columns:
            assert old.columns is not None and new.columns is not None
            most = old.most_columns + new.most_columns
            joined = replace(old, columns=old.columns | new.columns, most_columns=most)
        elif replace(a, tiles=()) == replace(b, tiles=()) and a.tiles and b.tiles:
            assert old.tiles is not None and new.tiles is not None
            joined = replace(old, tiles=AnyOf([old.tiles, new.tiles]))
        elif (
            not (a.columns or b.columns or a.tiles or b.tiles)
            and (a.stride, a.documents) == (b.stride, b.documents)
            and all(c.holds_query for c in (a, b))
            and all(d.query_ids is None for d in a.documents)
        ):
            joined = _joined(old, new)
        if joined is not None:
            return [*pieces[:place], joined, *pieces[place + 1 :]]
    return [*pieces, new]


def _words(clause: Clause) -> str:
    patterns = (*clause.limits, *clause.rows, *clause.columns, *clause.documents, *clause.tiles)
    shown = [repr(p) for p in patterns]
    shown += [f"stride {clause.stride}"] if clause.stride > 1 else []
    return " & ".join(shown) or "Full()"
