"""From a pattern, and what weights cut, to a layout.

The pairs that exist are pattern & (within reach | exempt), the bracket once for every weight that
cuts or exempts. Written as a union of clauses, those become disjoint pieces:

1. Clauses that are one interval around the query merge into one interval a row.
2. Every other clause loses that interval: what is left of it and what is right of it are two
intervals.
3. Keys that a set of columns already has are struck out of the pieces after it.
4. Global rows are taken out and walked apart, so that one long row does not make a tile of 64 long.

Where a step does not apply, the whole pattern becomes one tile list, which always does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..patterns import AllOf, AnyOf, Global, Pattern, PerHead, Summaries
from .clauses import (
    Clause,
    TooManyClauses,
    Within,
    Without,
    clauses_of,
    document_extent,
    intersections,
    limits_of,
)
from .parts import ALL_ACT, Layout, Order, Part, Walk
from .tiles import tile_list

__all__ = ["Cut", "compile_layout"]


class Cut(NamedTuple):
    """What one weight does to existence: pairs farther than `reach` (int `(B|1, H|1, N)`) go, but
    for `exempt` ones.
    """

    reach: Tensor | None = None
    exempt: Pattern | None = None


class _NeedsTiles(Exception):
    """The pattern has no disjoint parts; the message says why."""


def compile_layout(
    pattern: Pattern, cuts: tuple[Cut, ...], n: int, m: int, device: torch.device, *, merge: bool
) -> Layout:
    """Compiles a pattern for n queries and m keys, in O(n + m + tiles), without waiting for a GPU.

    Args:
        pattern: which pairs exist.
        cuts: for each weight, in order, what it cuts and exempts.
        n: queries.
        m: keys.
        device: where the layout is wanted, which is where the pattern's tensors are.
        merge: may a row's pairs be in two walks (softmax can merge their results, entmax cannot)?
    """
    exempts = tuple([cut.exempt for cut in cuts])
    patterns = [pattern, *[exempt for exempt in exempts if exempt is not None]]
    if any([cut.reach is not None for cut in cuts]) or any([p.has_tensors() for p in patterns]):
        return _compile(pattern, cuts, n, m, device, merge)
    return _static(pattern, exempts, n, m, device, merge)


@lru_cache(maxsize=256)
def _static(
    pattern: Pattern,
    exempts: tuple[Pattern | None, ...],
    n: int,
    m: int,
    device: torch.device,
    merge: bool,
) -> Layout:
    cuts = tuple(Cut(None, exempt) for exempt in exempts)
    return _compile(pattern, cuts, n, m, torch.device("cpu"), merge).to(device)


def _compile(
    pattern: Pattern, cuts: tuple[Cut, ...], n: int, m: int, device: torch.device, merge: bool
) -> Layout:
    per_head = [p for p in (pattern, *(c.exempt for c in cuts)) if isinstance(p, PerHead)]
    if not per_head:
        return _compile_heads(pattern, cuts, n, m, device, merge)
    groups: list[tuple[list[int], Pattern, tuple[Pattern | None, ...]]] = []
    for head in range(len(per_head[0].patterns)):
        own = pattern.of_head(head)
        exempts = tuple(c.exempt and c.exempt.of_head(head) for c in cuts)
        for heads, known, known_exempts in groups:
            if own == known and exempts == known_exempts:
                heads.append(head)
                break
        else:
            groups.append(([head], own, exempts))
    walks: list[Walk] = []
    merged, notes = False, []
    for heads, own, exempts in groups:
        cut_here = []
        for cut, exempt in zip(cuts, exempts, strict=True):
            reach = cut.reach
            if reach is not None and reach.shape[1] > 1:
                reach = reach[:, heads]
            cut_here.append(Cut(reach, exempt))
        layout = _compile_heads(own, tuple(cut_here), n, m, device, merge)
        walks += [Walk(w.queries, w.parts, tuple(heads)) for w in layout.walks]
        merged |= layout.merged
        notes += [f"heads {', '.join(map(str, heads))}: {note}" for note in layout.notes]
    return Layout(n, m, tuple(walks), merged, tuple(notes))


def _compile_heads(
    pattern: Pattern, cuts: tuple[Cut, ...], n: int, m: int, device: torch.device, merge: bool
) -> Layout:
    """Compiles for heads that share one pattern."""
    frame = _Frame(n, m, device)
    if n == 0 or m == 0:
        return Layout(n, m, ())
    try:
        pieces = [piece for choice in _choices(cuts) for piece in _pieces(pattern, choice, frame)]
        return _walks(pieces, frame, merge)
    except (_NeedsTiles, TooManyClauses) as reason:
        note = f"one tile list: {reason or 'the pattern has too many alternatives'}"
    parts = []
    for choice in _choices(cuts):
        limits = Clause(limits=tuple(Within(reach) for reach in choice.reaches))
        low, high = frame.bounds(limits)
        inside: Pattern = pattern
        for exempt in choice.inside:
            inside = inside & exempt
        if choice.outside:
            inside = Without(inside, choice.outside)
        tiles = tile_list(inside, n, m, device)
        parts.append(Part(Order(m), low, high + 1, tiles=tiles, active=choice.active))
    return Layout(n, m, (Walk(Order(n), tuple(parts)),), notes=(note,))


class _Choice(NamedTuple):
    """One way to exist: each weight either exempts the pair, or has it within its reach."""

    active: int
    reaches: tuple[Tensor, ...]
    inside: tuple[Pattern, ...]
    outside: tuple[Pattern, ...]


def _choices(cuts: tuple[Cut, ...]) -> list[_Choice]:
    found = []
    for exempted in product(*((False,) if c.exempt is None else (True, False) for c in cuts)):
        active = ALL_ACT
        if any(exempted):
            active = sum(1 << w for w, exempt in enumerate(exempted) if not exempt)
        acting = [c for c, exempt in zip(cuts, exempted, strict=True) if not exempt]
        found.append(
            _Choice(
                active,
                tuple(c.reach for c in acting if c.reach is not None),
                tuple(c.exempt for c, e in zip(cuts, exempted, strict=True) if e and c.exempt),
                tuple(c.exempt for c in acting if c.exempt is not None),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """Pairs by positions: row r has the keys low … high (inclusive) that the rest allows."""

    clause: Clause
    low: Tensor
    high: Tensor
    columns: Tensor | None = None
    most_columns: int = 0
    struck: Tensor | None = None
    tiles: Pattern | None = None
    active: int = ALL_ACT


class _Frame:
    """The sizes and the device of one compilation, and which rows turned out to be global."""

    def __init__(self, n: int, m: int, device: torch.device) -> None:
        self.n, self.m, self.device = n, m, device
        self.i = torch.arange(m - n, m, device=device)
        self.readable = device.type == "cpu"
        self.long_rows: Tensor | None = None
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
            self.most_rows += self.n if clause.rows[0].count is None else clause.rows[0].count
        return _emptied(low, high)

    def rows(self, clause: Clause) -> Tensor | None:
        """Which query rows a clause is for, bool `(B|1, n)`, or None for all."""
        found = None
        for pattern in clause.rows:
            rows = pattern.global_rows(self.n, self.m, self.device)
            assert rows is not None
            found = rows if found is None else found & rows
        return found

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

    def key_order(self, piece: _Piece) -> Order:
        """The order of a piece's keys: one object for the same order, by which kernels know it."""
        stride = piece.clause.stride
        known = id(piece.columns), stride
        if known not in self.key_orders:
            if piece.columns is not None:
                order = self.gathered(piece.columns, piece.most_columns)
            elif stride > 1:
                order = _residue_order(torch.arange(self.m, device=self.device), stride)
            else:
                order = Order(self.m)
            self.key_orders[known] = order
        return self.key_orders[known]


def _pieces(pattern: Pattern, choice: _Choice, frame: _Frame) -> list[_Piece]:
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


def _settled(clause: Clause, frame: _Frame) -> Clause:
    """Documents that lie together are an interval a row, and need no comparing."""
    if not clause.documents or frame.apart(clause):
        return clause
    return replace(clause, documents=(), limits=clause.limits + clause.documents)


def _less(piece: _Piece, clause: Clause, frame: _Frame) -> list[_Piece]:
    """A piece without the pairs of a clause that is global rows, a set of keys, or an interval."""
    plain = Clause(limits=clause.limits)
    if clause == Clause():
        return []
    if clause == Clause(rows=clause.rows):
        rows = frame.rows(clause)
        assert rows is not None
        low, high = _emptied(piece.low, torch.where(rows[:, None], -1, piece.high))
        return [replace(piece, low=low, high=high)]
    if clause == Clause(columns=clause.columns):
        return [_strike(piece, frame.columns(clause)[0])]
    if clause == plain:
        return _minus(piece, *frame.bounds(clause))
    raise _NeedsTiles("an exempt pattern is more than global tokens and windows")


def _strike(piece: _Piece, keys: Tensor | None) -> _Piece:
    assert keys is not None
    return replace(piece, struck=keys if piece.struck is None else piece.struck | keys)


def _minus(piece: _Piece, low: Tensor, high: Tensor) -> list[_Piece]:
    """What a piece has left of an interval, and right of it."""
    empty = high < low
    before = torch.where(empty, piece.high, torch.minimum(piece.high, low - 1))
    after = torch.where(empty, piece.high + 1, torch.maximum(piece.low, high + 1))
    left, right = _emptied(piece.low, before), _emptied(after, piece.high)
    return [
        replace(piece, low=left[0], high=left[1]),
        replace(piece, low=right[0], high=right[1]),
    ]


def _emptied(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Empty rows as (0, −1), so that no bound is out of range."""
    low, high = torch.broadcast_tensors(low, high)
    empty = high < low
    return torch.where(empty, 0, low), torch.where(empty, -1, high)


def _joined(a: _Piece, b: _Piece) -> _Piece:
    """One interval for two that both hold the query itself; an empty one adds nothing."""
    no_a, no_b = a.high < a.low, b.high < b.low
    low = torch.where(no_a, b.low, torch.where(no_b, a.low, torch.minimum(a.low, b.low)))
    common = tuple(p for p in a.clause.limits if p in b.clause.limits)
    rows = a.clause.rows + b.clause.rows if a.clause.rows and b.clause.rows else ()
    clause = replace(a.clause, limits=common, rows=rows)
    return replace(a, clause=clause, low=low, high=torch.maximum(a.high, b.high))


def _disjoint(clauses: list[Clause], frame: _Frame) -> list[_Piece]:
    """Clauses of one union as pieces that share no pair."""
    centre: _Piece | None = None
    others: list[_Piece] = []
    for clause in clauses:
        piece = _Piece(clause, *frame.bounds(clause))
        if clause.is_interval and clause.holds_query:
            centre = piece if centre is None else _joined(centre, piece)
            continue
        if clause.columns and (clause.stride > 1 or clause.documents or clause.tiles):
            raise _NeedsTiles(f"{_words(clause)} is a set of keys and something else")
        if clause.tiles and (clause.stride > 1 or clause.documents):
            raise _NeedsTiles(f"{_words(clause)} is a tile list and something else")
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
                raise _NeedsTiles(
                    f"{_words(earlier.clause)} and {_words(piece.clause)} overlap, "
                    "and no order of keys takes them apart"
                )
            piece = _strike(piece, earlier.columns)
        others[place] = piece
    if centre is None:
        return others
    halves: list[_Piece] = []
    for piece in others:
        if piece.clause.is_columns and centre.clause.within(piece.clause):
            # One bit a key is cheaper than the set of keys in two halves.
            centre = _strike(centre, piece.columns)
            halves.append(piece)
        else:
            halves += _minus(piece, centre.low, centre.high)
    return [centre, *halves]


def _added(pieces: list[_Piece], new: _Piece) -> list[_Piece]:
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
        elif replace(a, tiles=()) == replace(b, tiles=()) and old.tiles and new.tiles:
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


def _walks(pieces: list[_Piece], frame: _Frame, merge: bool) -> Layout:
    """Pieces in their query orders: identity, residue, and global rows apart."""
    if frame.readable:
        pieces = [p for p in pieces if bool((p.high >= p.low).any())]
    strides = sorted({p.clause.stride for p in pieces})
    local = [
        p for p in pieces if p.clause.stride == 1 and not (p.columns is not None or p.clause.rows)
    ]
    if len(strides) == 2 and not local:
        # Sets of columns do not care in which order the queries come, and global rows are walked
        # apart.
        groups = [(strides[1], pieces)]
    else:
        groups = [(s, [p for p in pieces if p.clause.stride == s]) for s in strides]
    if len(groups) > 1 and not merge:
        raise _NeedsTiles(
            "the normaliser needs a row's pairs in one place, and this pattern has them in "
            f"{len(groups)} orders of queries"
        )
    rows = frame.long_rows
    has_tiles = any(p.tiles is not None for p in pieces)
    if rows is not None and has_tiles and not merge and not frame.readable:
        rows = None
    walks, merged = [], len(groups) > 1
    for stride, group in groups:
        order = Order(frame.n) if stride == 1 else _residue_order(frame.i, stride)
        walks.append(_walk([_part(p, frame, order, rows) for p in group], frame, order))
    if rows is not None:
        gathered = frame.gathered(rows, frame.most_rows)
        parts = [_part(p, frame, gathered, ~rows) for p in pieces if p.tiles is None]
        walks.append(_walk(parts, frame, gathered))
        for piece in pieces:
            if piece.tiles is not None and not _empty_for(piece, rows, frame):
                if not merge:
                    raise _NeedsTiles("a global row has random blocks that its own interval lacks")
                merged = True
    return Layout(frame.n, frame.m, tuple(w for w in walks if w.parts), merged)


def _walk(parts: list[Part], frame: _Frame, order: Order) -> Walk:
    if frame.readable:
        parts = [p for p in parts if bool((p.high > p.low).any())]
    return Walk(order, tuple(parts))


def _empty_for(piece: _Piece, rows: Tensor, frame: _Frame) -> bool:
    """Is it known that a piece has nothing in these rows?"""
    return frame.readable and not bool(((piece.high >= piece.low) & rows[:, None]).any())


def _residue_order(positions: Tensor, stride: int) -> Order:
    index = (positions % stride).argsort(stable=True)
    return Order(len(positions), index[None], stride)


def _part(piece: _Piece, frame: _Frame, queries: Order, without: Tensor | None) -> Part:
    """A piece in an order of queries; rows in `without` are elsewhere, but for tile lists."""
    low, high = piece.low, piece.high
    if without is not None and piece.tiles is None:
        low, high = _emptied(low, torch.where(without[:, None], -1, high))
    stride, order = piece.clause.stride, frame.key_order(piece)
    if piece.columns is not None:
        rank = F.pad(piece.columns.cumsum(1), (1, 0))
        low, high = _ranked(rank, low), _ranked(rank, high + 1)
    elif stride > 1:
        own = frame.i % stride
        first = low + (own - low) % stride
        last = high - (high - own) % stride
        counts = (frame.m - torch.arange(stride, device=frame.device) + stride - 1) // stride
        base = (counts.cumsum(0) - counts)[own]
        empty = (high < low) | (last < first)
        low = torch.where(empty, 0, base + first // stride)
        high = torch.where(empty, 0, base + last // stride + 1)
    else:
        high = high + 1
    documents = []
    for pattern in piece.clause.documents:
        row_ids, _, key_ids = pattern.sides(frame.n, frame.m)
        documents.append((queries.of(row_ids), order.of(key_ids)))
    tiles = None
    if piece.tiles is not None:
        tiles = tile_list(piece.tiles, frame.n, frame.m, frame.device)
    return Part(
        order,
        _reordered(low, queries),
        _reordered(high, queries),
        None if piece.struck is None else order.of(~piece.struck),
        tuple(documents),
        tiles,
        piece.active,
        _band(low, high, frame) if order.index is None and queries.index is None else None,
    )


def _band(low: Tensor, high: Tensor, frame: _Frame) -> tuple[int, int] | None:
    """How far intervals [low, high) reach to the left and right, if that is the same for every row
    but for the ends; not asked on a GPU, which would have to be waited for.
    """
    if not frame.readable or low.shape[:2] != (1, 1) or frame.m < frame.n:
        return None
    left, right = int((frame.i - low).max()), int((high - 1 - frame.i).max())
    same = (frame.i - left).clamp(min=0) == low
    same &= (frame.i + right + 1).clamp(max=frame.m) == high
    return (left, right) if bool((same & (low < high)).all()) else None


def _ranked(rank: Tensor, place: Tensor) -> Tensor:
    """rank[b, place] for `(B|1, m + 1)` and `(B|1, H|1, N)`."""
    batch = max(rank.shape[0], place.shape[0])
    place = place.expand(batch, *place.shape[1:])
    return rank.expand(batch, -1).gather(1, place.flatten(1)).view_as(place)


def _reordered(values: Tensor, order: Order) -> Tensor:
    """Values of rows `(B|1, H|1, N)` in an order of queries."""
    if order.index is None:
        return values
    index = order.index[:, None]
    batch = max(values.shape[0], index.shape[0])
    shape = (batch, values.shape[1], order.length)
    return values.expand(batch, -1, -1).gather(2, index.expand(shape))
