"""What the kernels for Hopper are told about rows, against the dense pairs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from longspan.functional.reach import integer_reach
from longspan.kernels import triton as triton_backend
from longspan.patterns import Causal, Full, Pattern, SameDocument, Window
from longspan.weights import Bell, variance_of

from .intervals import Asked, ask, bells, padded

if TYPE_CHECKING:
    from longspan.kernels.triton.hopper.intervals import RowFacts

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are not interpreted here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

BLOCK = 64
NOWHERE = 1 << 30


def facts_of(asked: Asked) -> RowFacts:
    from longspan.kernels.triton.hopper.launch import _facts

    return _facts(asked.problem, 0, True, torch.zeros(1))


def kinds() -> tuple[int, int, int]:
    from longspan.kernels.triton.hopper.intervals import BAND, REACH, ROWS

    return BAND, REACH, ROWS


def pairs_of(facts: RowFacts, unit: int, n: int, m: int) -> Tensor:
    """The pairs that a unit's rows have by its facts, `(N, M)`."""
    band, reach, _ = kinds()
    own, i, j = facts.intervals, torch.arange(m - n, m)[:, None], torch.arange(m)
    if facts.kind == band:
        return (i - own.left <= j) & (j <= i + own.right)
    rows = own.rows[unit, :n, None]
    if facts.kind == reach:
        return (j - i).abs() <= rows
    return (rows <= j) & (j <= rows + own.widths[unit, :n, None])


def hulls(exists: Tensor) -> list[tuple[int, int, Tensor]]:
    """For every tile of rows its first and last key, (0, −1) for none, and its pairs."""
    found = []
    for rows in exists.split(BLOCK):
        keys = rows.any(0).nonzero().flatten().tolist()
        found.append((keys[0], keys[-1], rows) if keys else (0, -1, rows))
    return found


def check_table(table: Tensor, exists: Tensor) -> None:
    """A unit's `(tiles, 5)`: first key, steps, which steps every row has whole, last key."""
    for entry, (first, last, rows) in zip(table.tolist(), hulls(exists), strict=True):
        assert (entry[0], entry[4]) == (first, last)
        assert entry[1] == max(-(-(last + 1 - first) // BLOCK), 1)
        for step in range(entry[1]):
            keys = rows[:, first + step * BLOCK : first + (step + 1) * BLOCK]
            whole = keys.shape[1] == BLOCK and bool(keys.all())
            assert (entry[2] <= step < entry[3]) == whole, (entry, step)


def check_columns(columns: Tensor, exists: Tensor) -> None:
    """A unit's `(tiles of keys, 2)`: the first row that meets them, and steps of rows."""
    tiles = hulls(exists)
    for number, entry in enumerate(columns.tolist()):
        start = number * BLOCK
        meets = [t for t, (a, b, _) in enumerate(tiles) if a < start + BLOCK and b >= start]
        wanted = [meets[0] * BLOCK, meets[-1] - meets[0] + 1] if meets else [0, 1]
        assert entry == wanted, number


def check(asked: Asked) -> RowFacts:
    facts = facts_of(asked)
    batch, heads, n, _ = asked.q.shape
    m = asked.k.shape[2]
    own = facts.intervals
    for b in range(batch):
        for h in range(heads):
            unit = b * own.per_sample + h * own.per_head
            exists = asked.exists[b, h]
            assert torch.equal(pairs_of(facts, unit, n, m), exists)
            if facts.kind != kinds()[0]:
                check_table(own.table.view(-1, own.tiles, 5)[unit], exists)
                check_columns(facts.columns.view(-1, -(-m // BLOCK), 2)[unit], exists)
            if asked.variance is not None:
                wanted = (-0.5 / (asked.problem.scale * asked.variance[b, h])).clamp(min=-1e18)
                torch.testing.assert_close(facts.bells[unit, :n], wanted, equal_nan=True)
    return facts


CASES = [
    # A window is two numbers; a reach under one that is the same on both sides is one a row.
    (Window(20, 20), "none", 130, 130, 0),
    (Window(20, 3), "uncut", 130, 200, 0),
    (Window(20, 20), "same reach", 130, 130, 0),
    (Causal(), "number", 100, 100, 0),
    (Window(20, 20), "each", 130, 130, 1),
    (Window(40, 40), "each at most", 64, 200, 1),
    (Window(15, 15), "by sample", 130, 130, 1),
    (Window(20, 3), "each", 200, 200, 2),
    (Causal(), "by head", 130, 300, 2),
    (Causal() & Window(100, 0), "shared", 300, 300, 2),
    # Rows before the first key, of which some have none.
    (Full(), "none", 150, 70, 2),
    (Full(), "uncut", 150, 20, 2),
    (Full(), "same reach", 150, 20, 2),
    (Causal(), "none", 150, 70, 2),
    (Window(5, 5), "each", 300, 70, 2),
    (Window(5, 5), "same reach", 300, 70, 2),
    (Window(5, 5), "number", 300, 70, 2),
]


@pytest.mark.parametrize(("pattern", "bell", "n", "m", "kind"), CASES, ids=str)
def test_rows_are_the_dense_pairs(pattern: Pattern, bell: str, n: int, m: int, kind: int) -> None:
    asked = ask(pattern, bells(n, bell), n, m)
    assert check(asked).kind == kinds()[kind]


@pytest.mark.parametrize("bell", ["none", "each", "same reach"])
def test_documents_of_each_sample(bell: str) -> None:
    lengths = torch.tensor([[100, 7, 63], [5, 64, 101]])
    ids = torch.stack([torch.repeat_interleave(torch.arange(3), row) for row in lengths])
    asked = ask(SameDocument(ids), bells(170, bell), 170, 170)
    assert check(asked).kind == kinds()[2]


@pytest.mark.parametrize("padding", ["behind", "before", "between", "everywhere"])
@pytest.mark.parametrize(
    ("pattern", "bell", "n", "m"),
    [
        (Window(20, 20), "none", 130, 130),
        (Causal(), "none", 100, 170),
        (Window(20, 3), "each", 200, 200),
        (Full(), "by head", 130, 130),
        (Window(15, 15), "shared", 150, 90),
    ],
    ids=str,
)
def test_rows_end_where_padding_begins(
    pattern: Pattern, bell: str, n: int, m: int, padding: str
) -> None:
    from longspan.kernels.triton.hopper.intervals import PADDED

    real = padded(padding, m)
    weight = bells(n, bell)
    facts = facts_of(ask(pattern, weight, n, m, real=real))
    unpadded, own = ask(pattern, weight, n, m).exists, facts.intervals
    assert facts.kind == PADDED and torch.equal(own.real.bool(), real)
    for b in range(2):
        keys = real[b].nonzero().flatten().tolist()
        first, last = (keys[0], keys[-1]) if keys else (NOWHERE, -1)
        holes = int(len(keys) < last - first + 1 if keys else 0)
        assert own.padding.view(2, 3)[b].tolist() == [first, last, holes]
        j = torch.arange(m)
        for h in range(2):
            unit = b * own.per_sample + h * own.per_head
            exists = unpadded[b, h] & (j >= first) & (j <= last)
            assert torch.equal(pairs_of(facts, unit, n, m), exists)
            check_table(own.table.view(-1, own.tiles, 5)[unit], exists)
            check_columns(facts.columns.view(-1, -(-m // BLOCK), 2)[unit], exists)


@pytest.mark.parametrize("apart", [(False, False), (True, False), (False, True), (True, True)])
def test_arrays_of_samples_and_heads(apart: tuple[bool, bool]) -> None:
    """Any intervals: with empty rows between others, whole empty tiles, and gaps of keys."""
    from longspan.kernels.triton.arguments import Numbers
    from longspan.kernels.triton.hopper import intervals

    n, m = 330, 500
    shape = (2 if apart[0] else 1, 3 if apart[1] else 1, n)
    low = torch.randint(0, m, shape, dtype=torch.int32)
    high = (low + torch.randint(-20, 90, shape)).clamp(max=m).to(torch.int32)
    low[..., :64], high[..., :64] = 100, 300
    low[..., 64:128], high[..., 64:128] = 1, 1
    strides = low.stride(0) * apart[0], low.stride(1) * apart[1]
    numbers = Numbers(low, *strides, 1), Numbers(high, *strides, 1)
    size = intervals._Shape(*shape[:2], n, m)
    facts = intervals._of_arrays(*numbers, size, n, m)
    facts = intervals.with_columns(facts, m)
    own, j = facts.intervals, torch.arange(m)
    assert (own.per_sample, own.per_head) == (shape[1] * apart[0], int(apart[1]))
    assert own.rows.shape == own.widths.shape == (size.units, 332) and own.stride == 332
    for b in range(2):
        for h in range(3):
            unit = b * own.per_sample + h * own.per_head
            at = b * apart[0], h * apart[1]
            exists = (low[at][:, None] <= j) & (j < high[at][:, None])
            assert torch.equal(pairs_of(facts, unit, n, m), exists)
            assert (own.rows[unit, :n][~exists.any(1)] == NOWHERE).all()
            check_table(own.table.view(-1, own.tiles, 5)[unit], exists)
            check_columns(facts.columns.view(-1, 8, 2)[unit], exists)


@pytest.mark.parametrize("max_reach", [None, 0, 40, 2**40])
@pytest.mark.parametrize("threshold", [1e-9, 0.5, 0.999])
def test_reaches_are_the_integers_of_every_backend(threshold: float, max_reach: int | None) -> None:
    """Also beside whole numbers, and where a variance means nothing."""
    whole = variance_of(torch.arange(40).double(), threshold).float()
    hard = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-45, 1e-38, 3e38])
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    variance = torch.cat([whole, whole.nextafter(up), whole.nextafter(down), hard])
    n = len(variance)
    bell = Bell(variance[None, None], threshold=threshold, max_reach=max_reach)
    facts = check(ask(Window(35, 35), bell, n, n))
    assert facts.kind == kinds()[1]
    wanted = integer_reach(bell, torch.device("cpu"))
    assert wanted is not None
    assert facts.intervals.rows[0, :n].tolist() == wanted.clamp(max=35).flatten().tolist()
    assert torch.equal(facts.bells[0, :n].isnan(), ~(variance > 0))


@pytest.mark.parametrize(
    ("bell", "samples", "heads"),
    [("each", 2, 2), ("by head", 1, 2), ("by sample", 2, 1), ("shared", 1, 1), ("uncut", 2, 2)],
)
def test_shared_rows_are_kept_once(bell: str, samples: int, heads: int) -> None:
    facts = facts_of(ask(Window(9, 9), bells(70, bell), 70, 70))
    own = facts.intervals
    assert facts.bells.shape == (samples * heads, 72)
    assert (own.per_sample, own.per_head) == (heads if samples > 1 else 0, int(heads > 1))
    if bell != "uncut":
        assert own.rows.shape == facts.bells.shape and own.tiles == 2
        assert own.table.numel() == 5 * 2 * samples * heads
        assert facts.columns.numel() == 2 * 2 * samples * heads


def test_a_window_needs_nothing() -> None:
    from longspan.kernels.triton.hopper.intervals import band_facts, with_columns

    none = torch.zeros(1)
    facts = band_facts((3, 4), none)
    own = facts.intervals
    assert (facts.kind, own.left, own.right) == (kinds()[0], 3, 4)
    assert (own.per_sample, own.per_head) == (0, 0)
    assert all(x is none for x in (own.rows, own.widths, own.table, facts.bells, facts.columns))
    assert with_columns(facts, 100) is facts


def test_what_does_not_change_is_kept() -> None:
    asked = ask(Full(), None, 90, 70)
    first, again = facts_of(asked), facts_of(asked)
    assert first.columns is again.columns
    learned = ask(Full(), bells(90, "each"), 90, 70)
    assert facts_of(learned).columns is not facts_of(learned).columns
