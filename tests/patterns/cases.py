"""Every pattern with the meaning it must have: the table that the contract suites walk.

A meaning is a plain Python predicate of one pair, written from the definition and not from the
code. Positions are those of the keys; query row r of n sits at position i = r + m − n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from longspan.patterns import (
    BlockWindow,
    Causal,
    Fixed,
    Full,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Strided,
    Summaries,
    Window,
    bigbird,
    longformer,
    sparse_fixed,
    sparse_strided,
)

BATCH, HEADS = 2, 3

# One query, one key, n ≠ m both ways, less than a tile of 64, exactly one, and more.
SIZES = [(1, 1), (1, 9), (9, 1), (7, 7), (6, 17), (17, 6), (64, 64), (65, 130), (130, 65)]

# Is the pair of sample b, head h, query position i and key position j there?
Exists = Callable[[int, int, int, int], bool]


@dataclass(frozen=True)
class Case:
    """A pattern, what it must mean, and how many samples and heads it tells apart."""

    pattern: Pattern
    exists: Exists
    batch: int = 1
    heads: int = 1

    def __or__(self, other: Case) -> Case:
        return self._joined(self.pattern | other.pattern, other, any)

    def __and__(self, other: Case) -> Case:
        return self._joined(self.pattern & other.pattern, other, all)

    def _joined(self, pattern: Pattern, other: Case, how: Callable[..., bool]) -> Case:
        def exists(b: int, h: int, i: int, j: int) -> bool:
            return how((self.exists(b, h, i, j), other.exists(b, h, i, j)))

        return Case(pattern, exists, max(self.batch, other.batch), max(self.heads, other.heads))


Make = Callable[[int, int], Case]

CASES: dict[str, Make] = {}


def _case(name: str) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        assert name not in CASES
        CASES[name] = make
        return make

    return keep


def _chance(*shape: int, share: float = 0.3, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


# ---- One pattern each: a helper gives the case for some arguments, the table below has those.


def full() -> Case:
    return Case(Full(), lambda b, h, i, j: True)


def causal() -> Case:
    return Case(Causal(), lambda b, h, i, j: j <= i)


def window(left: int | None, right: int | None, dilation: int = 1) -> Case:
    def exists(b: int, h: int, i: int, j: int) -> bool:
        if (j - i) % dilation != 0:
            return False
        steps = (j - i) // dilation
        return (left is None or steps >= -left) and (right is None or steps <= right)

    return Case(Window(left, right, dilation), exists)


def block_window(block: int, left: int, right: int) -> Case:
    def exists(b: int, h: int, i: int, j: int) -> bool:
        return -left <= j // block - i // block <= right

    return Case(BlockWindow(block, left, right), exists)


def strided(stride: int) -> Case:
    return Case(Strided(stride), lambda b, h, i, j: (i - j) % stride == 0)


def summaries(stride: int, summary: int) -> Case:
    return Case(Summaries(stride, summary), lambda b, h, i, j: j % stride >= stride - summary)


def fixed(stride: int, summary: int) -> Case:
    def exists(b: int, h: int, i: int, j: int) -> bool:
        return i // stride == j // stride or j % stride >= stride - summary

    return Case(Fixed(stride, summary), exists)


def random(pattern: Random, m: int) -> Case:
    table = pattern.table_for(m)

    def exists(b: int, h: int, i: int, j: int) -> bool:
        return i >= 0 and j // pattern.block in table[i // pattern.block]

    return Case(pattern, exists)


def global_set(pattern: Global, rows: set[int], columns: set[int]) -> Case:
    """Global tokens that are the same in all samples: positions of rows and of columns."""
    return Case(pattern, lambda b, h, i, j: i in rows or j in columns)


def global_sets(pattern: Global, rows: list[set[int]], columns: list[set[int]]) -> Case:
    """Global tokens of each sample."""
    return Case(pattern, lambda b, h, i, j: i in rows[b] or j in columns[b], batch=BATCH)


def documents(ids: Tensor, n: int, m: int, query_ids: Tensor | None = None) -> Case:
    keys = ids.expand(BATCH, m).tolist()
    queries = None if query_ids is None else query_ids.expand(BATCH, n).tolist()

    def exists(b: int, h: int, i: int, j: int) -> bool:
        if queries is not None:
            return queries[b][i - (m - n)] == keys[b][j]
        return i >= 0 and keys[b][i] == keys[b][j]

    tensors = [ids] if query_ids is None else [ids, query_ids]
    return Case(
        SameDocument(ids, query_ids), exists, batch=max(_samples(tensor) for tensor in tensors)
    )


def mask(allowed: Tensor, n: int, m: int) -> Case:
    listed = allowed.expand(BATCH, HEADS, n, m).tolist()
    return Case(
        Mask(allowed),
        lambda b, h, i, j: listed[b][h][i - (m - n)][j],
        batch=allowed.shape[0],
        heads=allowed.shape[1],
    )


def per_head(cases: list[Case]) -> Case:
    return Case(
        PerHead([case.pattern for case in cases]),
        lambda b, h, i, j: cases[h].exists(b, 0, i, j),
        batch=max(case.batch for case in cases),
        heads=len(cases),
    )


def _samples(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.dim() == 2 else 1


def packed_ids(m: int, samples: int = BATCH) -> Tensor:
    """Documents one behind the other, of other lengths in each sample."""
    lengths = [(3, 1, 40, 2, 70, 5), (8, 60, 1, 1, 30)]
    rows = []
    for b in range(samples):
        row: list[int] = []
        while len(row) < m:
            row += [len(row)] * lengths[b][len(row) % len(lengths[b])]
        rows.append(row[:m])
    return torch.tensor(rows)


def shuffled_ids(m: int, samples: int = BATCH, count: int = 4) -> Tensor:
    """Documents whose tokens do not lie together."""
    ids = torch.randint(-1, count - 1, (samples, m), generator=torch.Generator().manual_seed(3))
    return ids * 1_000_003


def question_mask(m: int) -> Tensor:
    """Global tokens of each sample as a mask; the second sample has none when it is short."""
    found = torch.zeros(BATCH, m, dtype=torch.bool)
    found[0, : max(1, m // 9)] = True
    found[0, m - 1] = True
    found[1, 5 : 5 + m // 7] = True
    return found


def _members(found: Tensor) -> list[set[int]]:
    return [set(row.nonzero()[:, 0].tolist()) for row in found]


# ---- The table.

CASES["Full()"] = lambda n, m: full()
CASES["Causal()"] = lambda n, m: causal()
for _left, _right, _dilation in [
    (2, 1, 1),
    (0, 0, 1),
    (3, 0, 1),
    (0, 5, 1),
    (None, 0, 1),
    (0, None, 1),
    (None, None, 1),
    (70, 3, 1),
    (1000, 1000, 1),
    (2, 3, 3),
    (None, 1, 2),
    (1, None, 7),
    (None, None, 5),
    (1, 1, 200),
]:
    CASES[f"Window({_left}, {_right}, {_dilation})"] = (
        lambda n, m, arguments=(_left, _right, _dilation): window(*arguments)
    )
for _block, _left, _right in [(4, 1, 1), (5, 0, 2), (1, 2, 0), (64, 1, 0), (200, 1, 1)]:
    CASES[f"BlockWindow({_block}, {_left}, {_right})"] = (
        lambda n, m, arguments=(_block, _left, _right): block_window(*arguments)
    )
for _stride in (1, 2, 5, 64, 200):
    CASES[f"Strided({_stride})"] = lambda n, m, stride=_stride: strided(stride)
for _stride, _summary in [(1, 0), (1, 1), (3, 1), (4, 0), (4, 4), (5, 2), (64, 3), (200, 7)]:
    CASES[f"Fixed({_stride}, {_summary})"] = lambda n, m, arguments=(_stride, _summary): fixed(
        *arguments
    )
for _stride, _summary in [(5, 2), (3, 0), (1, 1), (70, 4)]:
    CASES[f"Summaries({_stride}, {_summary})"] = lambda n, m, arguments=(_stride, _summary): (
        summaries(*arguments)
    )


@_case("Random, drawn")
def _(n: int, m: int) -> Case:
    return random(Random(2, block=4, seed=7), m)


@_case("Random, drawn for a length")
def _(n: int, m: int) -> Case:
    return random(Random(2, block=16, seed=1, length=500), m)


@_case("Random, more blocks than there are")
def _(n: int, m: int) -> Case:
    return random(Random(9, block=64), m)


@_case("Random, a ragged table")
def _(n: int, m: int) -> Case:
    return random(Random(2, block=50, table=[[1], [0, 2], [-1, 2]]), m)


@_case("Random, a table as a tensor")
def _(n: int, m: int) -> Case:
    table = torch.tensor([[c % 13, (5 * c + 2) % 13, -1] for c in range(13)])
    return random(Random(3, block=10, table=table), m)


for _count in (0, 1, 3, 70, 1000, -2, -1000):

    def _first_or_last(n: int, m: int, count: int = _count) -> Case:
        tokens = set(range(m)[:count]) if count >= 0 else set(range(m)[count:])
        return global_set(Global(count), tokens, tokens)

    CASES[f"Global({_count})"] = _first_or_last


@_case("Global, rows alone")
def _(n: int, m: int) -> Case:
    return global_set(Global(2, columns=False), {0, 1} & set(range(m)), set())


@_case("Global, columns alone")
def _(n: int, m: int) -> Case:
    return global_set(Global(2, rows=False), set(), {0, 1})


@_case("Global, positions")
def _(n: int, m: int) -> Case:
    tokens = torch.tensor([m - 1, m // 3, m // 3])
    return global_set(Global(tokens), set(tokens.tolist()), set(tokens.tolist()))


@_case("Global, no position")
def _(n: int, m: int) -> Case:
    return global_set(Global(torch.zeros(0, dtype=torch.int64)), set(), set())


@_case("Global, positions of each sample, int32")
def _(n: int, m: int) -> Case:
    tokens = torch.tensor([[0, m // 2], [m - 1, m - 1]], dtype=torch.int32)
    sets = [set(row) for row in tokens.tolist()]
    return global_sets(Global(tokens), sets, sets)


@_case("Global, one mask")
def _(n: int, m: int) -> Case:
    found = question_mask(m)[0]
    tokens = set(found.nonzero()[:, 0].tolist())
    return global_set(Global(found), tokens, tokens)


@_case("Global, a mask of each sample")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    return global_sets(Global(found), _members(found), _members(found))


@_case("Global, a mask of each sample, rows alone")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    return global_sets(Global(found, columns=False), _members(found), [set(), set()])


@_case("Global, a mask of each sample, columns alone")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    return global_sets(Global(found, rows=False), [set(), set()], _members(found))


@_case("Global, queries alone")
def _(n: int, m: int) -> Case:
    rows = range(m - n, m)[:2]
    return global_set(Global(queries=2), set(rows), set())


@_case("Global, keys alone")
def _(n: int, m: int) -> Case:
    keys = torch.tensor([m - 1, 0])
    return global_set(Global(keys=keys), set(), {0, m - 1})


@_case("Global, queries and keys")
def _(n: int, m: int) -> Case:
    queries = torch.tensor([n - 1, n // 2])
    return global_set(Global(queries=queries, keys=-1), {m - 1, m - n + n // 2}, {m - 1})


@_case("Global, queries and keys as masks of each sample")
def _(n: int, m: int) -> Case:
    queries, keys = _chance(BATCH, n, seed=1), _chance(BATCH, m, share=0.1, seed=2)
    rows = [{r + m - n for r in members} for members in _members(queries)]
    return global_sets(Global(queries=queries, keys=keys), rows, _members(keys))


@_case("SameDocument, packed")
def _(n: int, m: int) -> Case:
    return documents(packed_ids(m), n, m)


@_case("SameDocument, packed, one list")
def _(n: int, m: int) -> Case:
    return documents(packed_ids(m)[1].to(torch.int32), n, m)


@_case("SameDocument, packed, not in order")
def _(n: int, m: int) -> Case:
    return documents(-packed_ids(m), n, m)


@_case("SameDocument, unsorted")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m), n, m)


@_case("SameDocument, unsorted, one list")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m)[0], n, m)


@_case("SameDocument, packed, with queries of their own")
def _(n: int, m: int) -> Case:
    return documents(packed_ids(m), n, m, query_ids=packed_ids(n)[:1])


@_case("SameDocument, unsorted, with queries of their own")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m)[0], n, m, query_ids=shuffled_ids(n, count=6))


for _shape in [(1, 1), (BATCH, 1), (1, HEADS), (BATCH, HEADS)]:
    CASES[f"Mask, {_shape}"] = lambda n, m, shape=_shape: mask(_chance(*shape, n, m, seed=5), n, m)


@_case("Mask, empty")
def _(n: int, m: int) -> Case:
    return mask(torch.zeros(1, 1, n, m, dtype=torch.bool), n, m)


@_case("Mask, full")
def _(n: int, m: int) -> Case:
    return mask(torch.ones(1, 1, n, m, dtype=torch.bool), n, m)


@_case("Mask, not contiguous")
def _(n: int, m: int) -> Case:
    return mask(_chance(1, m, n, HEADS, seed=6).permute(0, 3, 2, 1), n, m)


@_case("PerHead")
def _(n: int, m: int) -> Case:
    return per_head([causal(), window(2, 2, 3), fixed(5, 1)])


@_case("PerHead, two heads alike")
def _(n: int, m: int) -> Case:
    return per_head([window(9, 2), strided(3), window(9, 2)])


@_case("PerHead, of each sample")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    tokens = global_sets(Global(found), _members(found), _members(found))
    return per_head([documents(shuffled_ids(m), n, m), tokens, window(4, 4) | tokens])


# ---- Combinations.


@_case("a window and a global token")
def _(n: int, m: int) -> Case:
    return window(3, 3) | global_set(Global(1), {0}, {0})


@_case("a causal window and a global token")
def _(n: int, m: int) -> Case:
    return causal() & (window(8, 8) | global_set(Global(1), {0}, {0}))


@_case("a window and global tokens of each sample")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    return window(9, 4) | global_sets(Global(found), _members(found), _members(found))


@_case("a dilated window and global tokens of each sample")
def _(n: int, m: int) -> Case:
    found = question_mask(m)
    return window(3, 2, 4) | global_sets(Global(found), _members(found), _members(found))


@_case("a dilated window beside a plain one")
def _(n: int, m: int) -> Case:
    return window(3, 2) | window(4, 4, 6)


@_case("two dilations")
def _(n: int, m: int) -> Case:
    return window(3, 2, 4) | window(4, 4, 6)


@_case("two dilations at once")
def _(n: int, m: int) -> Case:
    return window(30, 20, 4) & window(40, 40, 6)


@_case("global rows within a window")
def _(n: int, m: int) -> Case:
    return global_set(Global(3), {0, 1, 2}, {0, 1, 2}) & window(2, 6)


@_case("global tokens of two kinds")
def _(n: int, m: int) -> Case:
    return global_set(Global(2), {0, 1}, {0, 1}) | global_set(Global(-1), {m - 1}, {m - 1})


@_case("causal documents")
def _(n: int, m: int) -> Case:
    return causal() & documents(packed_ids(m), n, m)


@_case("a window inside documents, or a global token")
def _(n: int, m: int) -> Case:
    return documents(packed_ids(m), n, m) & (window(6, 2) | global_set(Global(1), {0}, {0}))


@_case("a window inside unsorted documents")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m), n, m) & window(20, 20)


@_case("documents of two kinds")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m), n, m) & documents(packed_ids(m), n, m)


@_case("documents or a window")
def _(n: int, m: int) -> Case:
    return documents(shuffled_ids(m), n, m) | window(5, 5)


@_case("causal random blocks, a window and a global token")
def _(n: int, m: int) -> Case:
    drawn = random(Random(2, block=16, seed=3, length=200), m)
    return causal() & (drawn | window(7, 0) | global_set(Global(1), {0}, {0}))


@_case("a mask within a window, or strided")
def _(n: int, m: int) -> Case:
    return mask(_chance(1, HEADS, n, m), n, m) & window(9, 9) | strided(4)


@_case("one pattern a head, and global tokens for all")
def _(n: int, m: int) -> Case:
    heads = per_head([window(4, 4), window(4, 4, 3), window(4, 0)])
    return heads | global_set(Global(1), {0}, {0})


@_case("one pattern a head, causal, with a mask a head")
def _(n: int, m: int) -> Case:
    heads = per_head([full(), strided(3), fixed(8, 2)])
    return causal() & heads | mask(_chance(BATCH, HEADS, n, m, share=0.1), n, m)


@_case("nothing at all")
def _(n: int, m: int) -> Case:
    return global_set(Global(0), set(), set()) & causal()


# ---- Presets.


@_case("longformer")
def _(n: int, m: int) -> Case:
    expected = window(5, 5) | global_set(Global(2), {0, 1}, {0, 1})
    return Case(longformer(5, 2), expected.exists)


@_case("longformer, no tokens")
def _(n: int, m: int) -> Case:
    return Case(longformer(5, None, dilation=2), window(5, 5, 2).exists)


@_case("longformer, causal")
def _(n: int, m: int) -> Case:
    expected = (window(5, 0) | global_set(Global(1), {0}, {0})) & causal()
    return Case(longformer(5, causal=True), expected.exists)


@_case("bigbird")
def _(n: int, m: int) -> Case:
    pattern = bigbird(160, block=8, drawn=2, seed=4)
    (drawn,) = [p for p in pattern.children() if isinstance(p, Random)]
    ends = set(range(m)[:8]) | set(range(m)[-8:])
    expected = block_window(8, 1, 1) | random(drawn, m) | global_set(Global(8), ends, ends)
    return Case(pattern, expected.exists)


@_case("sparse_strided")
def _(n: int, m: int) -> Case:
    expected = causal() & (window(8, 0) | strided(8))
    return Case(sparse_strided(8), expected.exists)


@_case("sparse_fixed")
def _(n: int, m: int) -> Case:
    return Case(sparse_fixed(8, 2), (causal() & fixed(8, 2)).exists)


def definition(case: Case, n: int, m: int) -> Tensor:
    """What a case must mean, asked pair by pair: bool `(batch, heads, n, m)` of the case."""
    return torch.tensor(
        [
            [
                [[case.exists(b, h, i, j) for j in range(m)] for i in range(m - n, m)]
                for h in range(case.heads)
            ]
            for b in range(case.batch)
        ]
    )


@cache
def expected(name: str, n: int, m: int) -> Tensor:
    """The definition of a case by its name, asked for once."""
    return definition(CASES[name](n, m), n, m)
