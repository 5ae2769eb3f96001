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
from .ahead import LOCAL

__all__ = [
    "Drop",
    "Given",
    "Made",
    "Numbers",
    "PartValues",
    "Rows",
    "Vectors",
    "WalkArguments",
    "captured",
    "per_row",
    "terms_of",
    "tile_size",
    "vectors",
    "walk_arguments",
]

BELLS = {"bias": 0, "score": 1, "weight": 2}
RAMP, BIAS, DISTANCE, ALIBI = 3, 4, 5, 6

# How much shorter than the longest a sample's list of tokens is likely to be.
SHORTER = 4


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


class Given(NamedTuple):
    """What every kernel of a call reads. `shift` is the first query's position among the keys,
    `each` how many query heads a key head has.

    The last is 1, a constant for Triton: only where a tuple has one of its own does Triton, as it
    enters loops and branches, know those that lie deeper, as the strides of vectors may.
    """

    q: Vectors
    k: Vectors
    v: Vectors
    terms: tuple[TermValues, ...]
    reaches: tuple[Numbers, ...]
    drop: Drop
    shift: int
    scale: float
    each: int
    one: int = 1


class Made(NamedTuple):
    """The constants that a kernel is made for.

    Attributes:
        D, DV: channels of queries and keys, and of values; PD and PDV with padding.
        BM, BN: query rows and keys of a tile.
        KINDS, TERMS, REACHES: see `pairs.py`. WALKS: see `keys.py`.
        PLAIN: for each part, do its inner tiles need no mask but that of keys?
        INDEXED, LISTED: a walk's rows have an index, it is for some heads. KEYS_INDEXED: an order
            of keys has an index.
        FIRST: the walk writes every row; else only those that have an interval in it, over what is
            there, or MERGED with it.
        SUMS: gradients of weights that are summed by rows.
        EXACT: the mean gradient of a row is that of its pairs.
        CHUNKS: how many programs share a tile. PARTIAL: what they sum goes to a side buffer.
        CAREFUL: products are summed pair by pair.
    """

    D: int
    DV: int
    PD: int
    PDV: int
    BM: int
    BN: int
    TERMS: tuple[tuple[int, ...], ...]
    REACHES: tuple[int, ...]
    DROPOUT: bool
    FACTORS: bool
    PRECISION: str
    KINDS: tuple[tuple[int, ...], ...] = ()
    WALKS: tuple[tuple[int, ...], ...] = ()
    PLAIN: tuple[bool, ...] = ()
    INDEXED: bool = False
    LISTED: bool = False
    KEYS_INDEXED: bool = False
    FIRST: bool = False
    MERGED: bool = False
    SUMS: int = 0
    EXACT: bool = False
    CHUNKS: int = 1
    PARTIAL: bool = False
    CAREFUL: bool = False


class WalkArguments(NamedTuple):
    """A walk, and the constants that its kernels are made for.

    `kept` is for what launches find out about the walk; padding does not change it.
    """

    rows: Rows
    parts: tuple[PartValues, ...]
    kinds: tuple[tuple[int, ...], ...]
    indexed: bool
    listed: bool
    places: int
    kept: dict[Any, Any]


def tile_size(length: int, batch: int) -> int:
    """Rows or keys of an order's tile, at most TILE: a short one has small tiles. So has one in
    which samples differ (`batch` is its stride): most lists are far shorter than the longest.
    """
    likely = length // SHORTER if batch else length
    return min(max(16, 1 << max(likely - 1, 0).bit_length()), TILE)


def vectors(x: Tensor) -> Vectors:
    x = x if x.stride(3) == 1 or x.shape[3] == 1 else x.contiguous()
    return Vectors(x, x.stride(0), x.stride(1), x.stride(2))


def per_row(x: Tensor) -> Numbers:
    return Numbers(x, _shared(x, 0), _shared(x, 1), _shared(x, 2))


def walk_arguments(walk: Walk, heads: int, device: torch.device) -> WalkArguments:
    """The walk's arguments, from the last time where the layout is the same."""
    known: WalkArguments | None = walk.plan.get("triton")
    if known is None or known.places != (heads if walk.heads is None else len(walk.heads)):
        if walk.unpadded is not None:
            known = _padded(walk_arguments(walk.unpadded, heads, device), walk)
        else:
            known = _walk(walk, heads, device)
        if not captured(device):
            walk.plan["triton"] = known
    return known


def captured(device: torch.device) -> bool:
    """Is what is launched now computed later, or never? Nothing of it may be kept: a graph that
    records it computes when it is replayed, and a rehearsal not at all.
    """
    if LOCAL.rehearsing:
        return True
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _padded(known: WalkArguments, walk: Walk) -> WalkArguments:
    """The arguments of a walk that has fewer keys than the known one."""
    parts = []
    for own, part in zip(known.parts, walk.parts, strict=True):
        allowed, batch = _allowed(part, own.allowed)
        parts.append(own._replace(allowed=allowed, allowed_batch=batch))
    kinds = tuple((kind[0], 1, *kind[2:]) for kind in known.kinds)
    return known._replace(parts=tuple(parts), kinds=kinds)


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
                0 if part.tiles is None else 2 if part.tiles.whole else 1,
                part.active,
                part.keys.stride,
                tile_size(part.keys.length, parts[-1].order_batch),
            )
        )
    return WalkArguments(
        rows,
        tuple(parts),
        tuple(kinds),
        walk.queries.index is not None,
        walk.heads is not None,
        heads if walk.heads is None else len(walk.heads),
        {},
    )


def _index(order: Order, none: Tensor) -> tuple[Tensor, int]:
    if order.index is None:
        return none, 0
    index = _laid_out(order.index.to(torch.int32))
    return index, _shared(index, 0)


def _laid_out(x: Tensor) -> Tensor:
    """Contiguous, but for a last dim of 1, which gets room for 2: a stride of 1 is a constant for
    Triton, and 3.6 loses constants that lie deep in a kernel's arguments inside of its branches.
    """
    if x.shape[-1] != 1:
        return x.contiguous()
    return torch.cat((x, x), -1)[..., :1]


def _shared(x: Tensor, dim: int) -> int:
    """The stride of a dim, 0 where it is shared."""
    return x.stride(dim) if x.shape[dim] > 1 else 0


def _allowed(part: Part, none: Tensor) -> tuple[Tensor, int]:
    if part.allowed is None:
        return none, 0
    allowed = _laid_out(part.allowed.view(torch.uint8))
    return allowed, _shared(allowed, 0)


def _part(part: Part, none: Tensor) -> PartValues:
    low, high = (_laid_out(x.to(torch.int32)) for x in (part.low, part.high))
    index, index_batch = _index(part.keys, none)
    allowed, allowed_batch = _allowed(part, none)
    documents = []
    for rows, keys in part.documents:
        rows, keys = _laid_out(rows), _laid_out(keys)
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
        allowed_batch,
        tuple(documents),
        *_tiles(part.tiles, part.low.shape[2], part.keys.length, none),
    )


def _tiles(tiles: TileList | None, n: int, m: int, none: Tensor) -> tuple[Any, ...]:
    if tiles is None:
        return (none, none, none, 0, 0, none, none, none, none)
    mask = _laid_out(tiles.mask.to(torch.int32))
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
        if (term.number, name) in wanted and _by_rows(term):
            place = len(summed)
            summed.append((term.number, name))
        values.append(own)
        kinds.append((kind, term.number, int(normalized), place))
    return tuple(values), tuple(kinds), summed


def _by_rows(term: Term) -> bool:
    """Whether each row's share of the gradient is one number."""
    if isinstance(term, BiasTerm):
        return term.tensor.shape[3] == 1
    return not isinstance(term, DistanceTerm)


def _term(term: Term) -> tuple[TermValues, int, bool, str]:
    if isinstance(term, BellTerm):
        return TermValues(*per_row(term.given)), BELLS[term.form], term.normalized, "variance"
    if isinstance(term, RampTerm):
        return TermValues(*per_row(term.given), softness=term.softness), RAMP, False, "span"
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
