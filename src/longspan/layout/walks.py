"""From pieces to walks: each in its query order, and global rows apart, so that one long row does
not make a tile of 64 long.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .parts import Layout, Order, Part, Walk
from .pieces import Frame, NeedsTiles, Piece, emptied, residue_order
from .tiles import tile_list, within

__all__ = ["walks_of"]


def walks_of(pieces: list[Piece], frame: Frame, merge: bool) -> Layout:
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
        raise NeedsTiles(
            "the normaliser needs a row's pairs in one place, and this pattern has them in "
            f"{len(groups)} orders of queries"
        )
    rows = frame.long_rows
    has_tiles = any(p.tiles is not None for p in pieces)
    if rows is not None and has_tiles and not merge and not frame.readable:
        rows = None
    walks, merged = [], len(groups) > 1
    for stride, group in groups:
        order = Order(frame.n) if stride == 1 else residue_order(frame.i, stride)
        if rows is not None:
            # What is of global rows alone is walked with them, but for tile lists.
            group = [p for p in group if p.tiles is not None or not p.clause.rows]
        walks.append(_walk([_part(p, frame, order, rows) for p in group], frame, order))
    if rows is not None:
        gathered = frame.gathered(rows, frame.most_rows)
        long = [p for p in pieces if p.tiles is None and frame.has_long_rows(p)]
        parts = [_part(p, frame, gathered, ~rows) for p in long]
        walks.append(_walk(parts, frame, gathered))
        for piece in pieces:
            if piece.tiles is not None and not _empty_for(piece, rows, frame):
                if not merge:
                    raise NeedsTiles("a global row has random blocks that its own interval lacks")
                merged = True
    return Layout(frame.n, frame.m, tuple(w for w in walks if w.parts), merged)


def _walk(parts: list[Part], frame: Frame, order: Order) -> Walk:
    if frame.readable:
        parts = [p for p in parts if bool((p.high > p.low).any())]
        parts = [p for p in parts if p.allowed is None or bool(p.allowed.any())]
    return Walk(order, tuple(parts))


def _empty_for(piece: Piece, rows: Tensor, frame: Frame) -> bool:
    """Is it known that a piece has nothing in these rows?"""
    return frame.readable and not bool(((piece.high >= piece.low) & rows[:, None]).any())


def _part(piece: Piece, frame: Frame, queries: Order, without: Tensor | None) -> Part:
    """A piece in an order of queries; rows in `without` are elsewhere, but for tile lists."""
    low, high = piece.low, piece.high
    if without is not None and piece.tiles is None:
        low, high = emptied(low, torch.where(without[:, None], -1, high))
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
        if frame.readable:
            tiles = within(tiles, low, high)
    own_order = order.index is None and queries.index is None
    # Of global rows it says nothing: they have to be elsewhere.
    known = own_order and (without is not None or frame.long_rows is None)
    return Part(
        order,
        _reordered(low, queries),
        _reordered(high, queries),
        None if piece.struck is None else order.of(~piece.struck),
        tuple(documents),
        tiles,
        piece.active,
        piece.band if known else None,
    )


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
