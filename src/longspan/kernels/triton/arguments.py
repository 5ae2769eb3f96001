"""A problem in the form that the kernels read: pointers, strides and constants.

What depends on the layout alone is kept with its walks, so that a static pattern is written down
once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...layout import TILE, Order, Part, TileList, Walk
from ..problem import (
    AlibiTerm,
    BellTerm,
    BiasTerm,
    DistanceTerm,
    Problem,
    RampTerm,
    Term,
)

__all__ = [
    "Drop",
    "Numbers",
    "PartValues",
    "Rows",
    "Vectors",
    "WalkArguments",
    "terms_of",
    "tile_size",
    "vectors",
    "walk_arguments",
]

BELLS = {"bias": 0, "score": 1, "weight": 2}
RAMP, BIAS, DISTANCE, ALIBI = 3, 4, 5, 6


class Vectors(NamedTuple):
    """`(B, H, N, D)`; the last dim is contiguous."""

    data: Tensor
    batch: int
    head: int
    row: int


class Numbers(NamedTuple):
    """`(B|1, H|1, N|1)`, with stride 0 where a dim is shared."""

    data: Tensor
    batch: int
    head: int
    row: int


class TermValues(NamedTuple):
    """A weight's tensor, by strides, and its numbers."""

    data: Tensor
    batch: int = 0
    head: int = 0
    row: int = 0
    key: int = 0
    length: int = 0
    right: int = 0
    softness: float = 1.0
    lowest: float = 0.0


class Rows(NamedTuple):
    """An order of queries, and the heads that a walk is for."""

    order: Tensor
    order_batch: int
    length: int
    heads: Tensor


class Documents(NamedTuple):
    rows: Tensor
    rows_batch: int
    keys: Tensor
    keys_batch: int


class PartValues(NamedTuple):
    """See `layout.Part`; the last three are a tile list by columns."""

    low: Tensor
    low_batch: int
    low_head: int
    high: Tensor
    high_batch: int
    high_head: int
    order: Tensor
    order_batch: int
    length: int
    allowed: Tensor
    allowed_batch: int
    documents: tuple[Documents, ...]
    start: Tensor
    columns: Tensor
    mask: Tensor
    mask_batch: int
    mask_head: int
    words: Tensor
    column_start: Tensor
    column_rows: Tensor
    column_entry: Tensor


class Drop(NamedTuple):
    """Dropout: its seed, the smallest word that is kept, and what the kept are multiplied by."""

    seed: Tensor
    least: int
    scale: float


class WalkArguments(NamedTuple):
    """A walk, and the constants that its kernels are made for."""

    rows: Rows
    parts: tuple[PartValues, ...]
    kinds: tuple[tuple[int, ...], ...]
    indexed: bool
    listed: bool
    places: int


def tile_size(length: int) -> int:
    """Rows or keys of a tile, at most TILE: a short order has small ones."""
    return min(max(16, 1 << max(length - 1, 0).bit_length()), TILE)


def vectors(x: Tensor) -> Vectors:
    x = x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous()
    return Vectors(x, x.stride(0), x.stride(1), x.stride(2))


def walk_arguments(walk: Walk, heads: int, device: torch.device) -> WalkArguments:
    """The walk's arguments, from the last time where the layout is the same."""
    known: WalkArguments | None = walk.plan.get("triton")
    if known is None or known.places != (heads if walk.heads is None else len(walk.heads)):
        known = walk.plan["triton"] = _walk(walk, heads, device)
    return known


def _walk(walk: Walk, heads: int, device: torch.device) -> WalkArguments:
    none = torch.zeros(1, dtype=torch.int32, device=device)
    index, batch = _index(walk.queries, none)
    own = none
    if walk.heads is not None:
        own = torch.tensor(walk.heads, dtype=torch.int32, device=device)
    rows = Rows(index, batch, walk.queries.length, own)
    parts, kinds = [], []
    for part in walk.parts:
        parts.append(_part(part, none))
        kinds.append(
            (
                int(part.keys.index is not None),
                int(part.allowed is not None),
                len(part.documents),
                int(part.tiles is not None),
                part.active,
                tile_size(part.keys.length),
            )
        )
    return WalkArguments(
        rows,
        tuple(parts),
        tuple(kinds),
        walk.queries.index is not None,
        walk.heads is not None,
        heads if walk.heads is None else len(walk.heads),
    )


def _index(order: Order, none: Tensor) -> tuple[Tensor, int]:
    if order.index is None:
        return none, 0
    index = order.index.to(torch.int32).contiguous()
    return index, _shared(index, 0)


def _shared(x: Tensor, dim: int) -> int:
    """The stride of a dim, 0 where it is shared."""
    return x.stride(dim) if x.shape[dim] > 1 else 0


def _part(part: Part, none: Tensor) -> PartValues:
    low, high = (x.to(torch.int32).contiguous() for x in (part.low, part.high))
    index, index_batch = _index(part.keys, none)
    allowed = none if part.allowed is None else part.allowed.to(torch.uint8).contiguous()
    documents = []
    for rows, keys in part.documents:
        rows, keys = rows.contiguous(), keys.contiguous()
        documents.append(Documents(rows, _shared(rows, 0), keys, _shared(keys, 0)))
    return PartValues(
        low,
        _shared(low, 0),
        _shared(low, 1),
        high,
        _shared(high, 0),
        _shared(high, 1),
        index,
        index_batch,
        part.keys.length,
        allowed,
        0 if part.allowed is None else _shared(allowed, 0),
        tuple(documents),
        *_tiles(part.tiles, part.low.shape[2], part.keys.length, none),
    )


def _tiles(tiles: TileList | None, n: int, m: int, none: Tensor) -> tuple[Any, ...]:
    if tiles is None:
        return (none, none, none, 0, 0, none, none, none, none)
    mask = tiles.mask.to(torch.int32).contiguous()
    by_column = tiles.columns.argsort(stable=True)
    edges = torch.arange(-(-n // TILE) + 1, device=tiles.rows.device)
    column_edges = torch.arange(-(-m // TILE) + 1, device=tiles.rows.device)
    words = tiles.masks if len(tiles.masks) else tiles.masks.new_zeros(1, TILE)
    return (
        torch.searchsorted(tiles.rows.contiguous(), edges).to(torch.int32),
        tiles.columns.to(torch.int32),
        mask,
        _shared(mask, 0),
        _shared(mask, 1),
        words.contiguous(),
        torch.searchsorted(tiles.columns[by_column], column_edges).to(torch.int32),
        tiles.rows[by_column].to(torch.int32),
        by_column.to(torch.int32),
    )


def terms_of(
    problem: Problem, wanted: frozenset[tuple[int, str]]
) -> tuple[tuple[TermValues, ...], tuple[tuple[int, int, int, int], ...], list[tuple[int, str]]]:
    """The weights, the constants that kernels are made for, and whose gradients they sum by rows.

    The last of a weight's constants is its place among those, or −1.
    """
    values, kinds = [], []
    summed: list[tuple[int, str]] = []
    for term in problem.terms:
        own, kind, normalized, name = _term(term)
        place = -1
        if (term.number, name) in wanted and kind not in (BIAS, DISTANCE):
            place = len(summed)
            summed.append((term.number, name))
        values.append(own)
        kinds.append((kind, term.number, int(normalized), place))
    return tuple(values), tuple(kinds), summed


def _term(term: Term) -> tuple[TermValues, int, bool, str]:
    if isinstance(term, BellTerm):
        own = _per_row(term.variance)
        return own, BELLS[term.form], term.normalized, "variance"
    if isinstance(term, RampTerm):
        return _per_row(term.span)._replace(softness=term.softness), RAMP, False, "span"
    if isinstance(term, BiasTerm):
        bias = term.tensor
        own = TermValues(
            bias,
            batch=_shared(bias, 0),
            head=_shared(bias, 1),
            row=_shared(bias, 2),
            key=_shared(bias, 3),
            lowest=float(torch.finfo(bias.dtype).min),
        )
        return own, BIAS, False, "tensor"
    if isinstance(term, DistanceTerm):
        table = term.table.float().contiguous()
        own = TermValues(table, head=_shared(table, 0), length=table.shape[1], right=term.right)
        return own, DISTANCE, False, "table"
    assert isinstance(term, AlibiTerm)
    slopes = term.slopes.float().contiguous()
    return TermValues(slopes, head=_shared(slopes, 0)), ALIBI, False, "slopes"


def _per_row(x: Tensor) -> TermValues:
    x = x.float()
    return TermValues(x, batch=_shared(x, 0), head=_shared(x, 1), row=_shared(x, 2))
