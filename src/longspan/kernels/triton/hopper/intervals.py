"""What the kernels for Hopper are told about a problem's rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...problem import BellReach, BellTerm, Problem, SameReach
from ..arguments import Numbers, PartValues, per_row
from ..launching import empty, start
from . import ring
from .ring import Intervals
from .rows import columns_of_rows, padding_of_keys, rows_of_arrays, rows_of_bells

__all__ = [
    "BLOCK",
    "NUMBERS",
    "Padding",
    "RowFacts",
    "band_facts",
    "facts_of",
    "padding_of",
    "with_columns",
]

BAND, REACH, ROWS = ring.BAND.value, ring.REACH.value, ring.ROWS.value
PADDED = ring.PADDED.value
NUMBERS = ring.NUMBERS.value

# Rows, and keys, of a tile.
BLOCK = 64
# Tiles that one program of the small kernels looks at.
TILES = 4
KEYS_AT_ONCE = 32
MOST_SCANNED = 256
# Marks of padding that one of them looks at.
MARKS_AT_ONCE = 1024


class RowFacts(NamedTuple):
    """Intervals in one of four kinds, what bells multiply d² by (float32 `(units, stride)`), and
    which rows the tiles of keys meet (int32 `(units, tiles of keys, 2)`, only for the backward).
    """

    kind: int
    intervals: Intervals
    bells: Tensor
    columns: Tensor


class Padding(NamedTuple):
    """Which keys are real, uint8 `(B, M)`, its stride, and what `padding_of_keys` found."""

    real: Tensor
    batch: int
    found: Tensor


def padding_of(real: Tensor) -> Padding:
    """What the kernels are told of padding; `real` is bool `(B, M)`."""
    own = real.view(torch.uint8)
    if own.stride(1) != 1 or own.data_ptr() % 16:
        own = own.clone(memory_format=torch.contiguous_format)
    samples, m = own.shape
    found = empty((3 * samples,), torch.int32, own.device)
    start(
        padding_of_keys,
        (own.device, samples, m, own.stride(0)),
        (samples, 1),
        (own, found, m, own.stride(0)),
        {"SCAN": MARKS_AT_ONCE},
    )
    return Padding(own, own.stride(0), found)


class _Shape(NamedTuple):
    """Sizes of what is known about rows: samples and heads are 1 where they are shared."""

    samples: int
    heads: int
    n: int
    m: int

    @property
    def units(self) -> int:
        return self.samples * self.heads

    @property
    def stride(self) -> int:
        """Of a unit's rows: their TMA wants multiples of 16 bytes."""
        return -(-self.n // 4) * 4

    @property
    def tiles(self) -> int:
        return -(-self.n // BLOCK)

    def intervals(
        self,
        rows: Tensor,
        widths: Tensor,
        table: Tensor,
        band: tuple[int, int],
        padding: Padding | None,
    ) -> Intervals:
        padding = padding or Padding(table, 0, table)
        return Intervals(
            rows,
            widths,
            self.stride,
            table,
            self.tiles,
            self.heads if self.samples > 1 else 0,
            int(self.heads > 1),
            left=band[0],
            right=band[1],
            real=padding.real,
            real_batch=padding.batch,
            padding=padding.found,
        )


def facts_of(
    problem: Problem, part: PartValues, band: tuple[int, int] | None, padding: Padding | None
) -> RowFacts:
    """The facts of a problem with one part in identity orders, with its reach, if it has one.

    Args:
        part: its intervals.
        band: how far every row looks to the left and to the right, where that is all there is to
            say.
        padding: of the keys; None where all are real.
    """
    term = next((t for t in problem.terms if isinstance(t, BellTerm)), None)
    reach = next((r for r in problem.reaches if isinstance(r, BellReach)), None)
    n, m = problem.q.shape[2], problem.k.shape[2]
    low = Numbers(part.low, part.low_batch, part.low_head, 1)
    high = Numbers(part.high, part.high_batch, part.high_head, 1)
    if term is None:
        assert band is None or padding is not None
        shape = _shape_of(problem, padding, None, low, high)
        return _of_arrays(low, high, shape, n, m, padding)
    shape = _shape_of(problem, padding, term.given, *(() if band is not None else (low, high)))
    # Rows may lie before the first key: from there the last one is farther than there are keys.
    most = reach.most if reach is not None else n + m
    for same in problem.reaches:
        if isinstance(same, SameReach):
            most = min(most, same.tokens)
    return _of_bells(term.given, reach, most, problem.scale, low, high, band, shape, padding)


def band_facts(band: tuple[int, int], none: Tensor) -> RowFacts:
    """The facts of a window, which are two numbers; `none` is any tensor."""
    own = Intervals(none, none, 0, none, 0, 0, 0, *band, none, 0, none)
    return RowFacts(BAND, own, none, none)


def _shape_of(
    problem: Problem, padding: Padding | None, variance: Tensor | None, *numbers: Numbers
) -> _Shape:
    batch, heads, n, _ = problem.q.shape
    samples = padding is not None or any(x.batch for x in numbers)
    samples = samples or (variance is not None and variance.shape[0] > 1)
    apart = any(x.head for x in numbers) or (variance is not None and variance.shape[1] > 1)
    return _Shape(batch if samples else 1, heads if apart else 1, n, problem.k.shape[2])


def _of_bells(
    variance: Tensor,
    reach: BellReach | None,
    most: int,
    scale: float,
    low: Numbers,
    high: Numbers,
    band: tuple[int, int] | None,
    shape: _Shape,
    padding: Padding | None,
) -> RowFacts:
    device = variance.device
    cut = reach is not None
    table_too = cut or band is None or padding is not None
    kind = BAND
    if padding is not None:
        kind = PADDED
    elif table_too:
        # Seen from both sides alike: the keys' kernel then reads one number a row, not two.
        kind = REACH if band is not None and band[0] == band[1] else ROWS
    left, right = band if band is not None else (shape.m, shape.m)
    numbers = 1 + (kind != BAND) + (kind >= ROWS)
    whole = empty((numbers, shape.units, shape.stride), torch.float32, device)
    bells = whole[0]
    rows = whole[1] if kind != BAND else bells
    widths = whole[2] if kind >= ROWS else bells
    if kind >= ROWS:
        rows, widths = rows.view(torch.int32), widths.view(torch.int32)
    table = empty((5 * shape.units * shape.tiles if table_too else 1,), torch.int32, device)
    intervals = shape.intervals(rows, widths, table, (left, right), padding)
    threshold = reach.threshold if reach is not None else 1.0
    given = per_row(variance)
    # It is what was given, perhaps a part of something larger.
    aligned = variance.data_ptr() % 16 == 0
    start(
        rows_of_bells,
        (device, *shape, kind, band, most, threshold, aligned, given[1:], low[1:], high[1:]),
        (-(-shape.tiles // TILES), shape.units),
        (
            given, bells, low, high, intervals.padding, rows, widths, table, shape.n, shape.m, left,
            right, most, scale, shape.stride, shape.heads, shape.tiles,
        ),
        {
            "CURVE": -2 * math.log(threshold), "KIND": kind, "CUT": cut, "ARRAYS": band is None,
            "TABLE": table_too, "BM": BLOCK, "BN": BLOCK, "TILES": TILES,
        },
        num_warps=2,
    )  # fmt: skip
    return RowFacts(kind, intervals, bells, table)


def _of_arrays(
    low: Numbers, high: Numbers, shape: _Shape, n: int, m: int, padding: Padding | None = None
) -> RowFacts:
    kind = ROWS if padding is None else PADDED
    device = low.data.device
    whole = empty((2, shape.units, shape.stride), torch.int32, device)
    table = empty((5 * shape.units * shape.tiles,), torch.int32, device)
    intervals = shape.intervals(whole[0], whole[1], table, (m, m), padding)
    start(
        rows_of_arrays,
        (device, *shape, kind, low[1:], high[1:]),
        (-(-shape.tiles // TILES), shape.units),
        (
            low, high, intervals.padding, whole[0], whole[1], table, n, shape.stride, shape.heads,
            shape.tiles,
        ),
        {"KIND": kind, "BM": BLOCK, "BN": BLOCK, "TILES": TILES},
        num_warps=2,
    )  # fmt: skip
    return RowFacts(kind, intervals, table, table)


def with_columns(facts: RowFacts, m: int) -> RowFacts:
    """The facts with the rows that tiles of keys meet."""
    if facts.kind == BAND:
        return facts
    tiles, key_tiles, table = facts.intervals.tiles, -(-m // BLOCK), facts.intervals.table
    units = table.numel() // (5 * tiles)
    columns = empty((2 * units * key_tiles,), torch.int32, table.device)
    scan = min(1 << max(tiles - 1, 1).bit_length(), MOST_SCANNED)
    start(
        columns_of_rows,
        (table.device, units, tiles, key_tiles),
        (-(-key_tiles // KEYS_AT_ONCE), units),
        (table, columns, tiles, key_tiles),
        {"BM": BLOCK, "BN": BLOCK, "KEYS": KEYS_AT_ONCE, "SCAN": scan},
    )
    return facts._replace(columns=columns)
