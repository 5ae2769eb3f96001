"""Patterns, and expressions of them, drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from longspan.errors import INTEGER_DTYPES
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
)

BATCH, HEADS = 2, 2

sizes = st.tuples(st.integers(1, 150), st.integers(1, 150))


@dataclass(frozen=True)
class Expression:
    """A pattern made with `|` and `&`, and its dense form made from those of its leaves."""

    pattern: Pattern
    dense: Tensor

    def __or__(self, other: Expression) -> Expression:
        return Expression(self.pattern | other.pattern, self.dense | other.dense)

    def __and__(self, other: Expression) -> Expression:
        return Expression(self.pattern & other.pattern, self.dense & other.dense)


def chance(seed: int, share: float, *shape: int) -> Tensor:
    """A bool tensor with so large a share of True."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def _steps(m: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, 6) | st.integers(0, m + 1)


@st.composite
def windows(draw: st.DrawFn, n: int, m: int) -> Pattern:
    dilation = draw(st.sampled_from([1, 1, 2, 3, 7, 64]))
    return Window(draw(_steps(m)), draw(_steps(m)), dilation)


@st.composite
def fixed(draw: st.DrawFn, n: int, m: int) -> Pattern:
    stride = draw(st.integers(1, 70))
    kind = draw(st.sampled_from([Fixed, Summaries]))
    return kind(stride, draw(st.integers(0, min(stride, 3)) | st.integers(0, stride)))


@st.composite
def some_tokens(draw: st.DrawFn, size: int) -> int | Tensor:
    """Global tokens in each of their forms."""
    form = draw(st.sampled_from(["count", "positions", "own positions", "mask", "own mask"]))
    seed = draw(st.integers(0, 1000))
    if form == "count":
        return draw(st.integers(-3, 3) | st.integers(-size, size))
    if "mask" in form:
        found = chance(seed, draw(st.sampled_from([0.02, 0.2, 1.0])), BATCH, size)
        return found if form == "own mask" else found[0]
    count = draw(st.integers(0, 5))
    dtype = draw(st.sampled_from(INTEGER_DTYPES))
    most = min(size, torch.iinfo(dtype).max + 1)
    found = torch.randint(most, (BATCH, count), generator=torch.Generator().manual_seed(seed))
    found = found.to(dtype)
    return found if form == "own positions" else found[0]


@st.composite
def global_tokens(draw: st.DrawFn, n: int, m: int) -> Pattern:
    if draw(st.integers(0, 3)) == 0:
        sides = draw(st.sampled_from(["queries", "keys", "both"]))
        queries = None if sides == "keys" else draw(some_tokens(n))
        keys = None if sides == "queries" else draw(some_tokens(m))
        return Global(queries=queries, keys=keys)
    rows, columns = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    return Global(draw(some_tokens(m)), rows, columns)


@st.composite
def random_blocks(draw: st.DrawFn, n: int, m: int) -> Pattern:
    block = draw(st.sampled_from([1, 5, 16, 64, 100]))
    if draw(st.booleans()):
        length = draw(st.sampled_from([None, m, m + 77]))
        return Random(draw(st.integers(1, 3)), block, draw(st.integers(0, 99)), length)
    count = -(-m // block)
    entry = st.integers(-1, count)
    row = st.lists(entry, max_size=2)
    table = draw(st.lists(row, min_size=count, max_size=count))
    return Random(2, block, table=table)


@st.composite
def documents(draw: st.DrawFn, n: int, m: int) -> Pattern:
    def ids(size: int) -> Tensor:
        generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
        found = torch.randint(draw(st.integers(1, 5)), (BATCH, size), generator=generator)
        if draw(st.booleans()):
            found = found.sort(1, descending=draw(st.booleans())).values
        found = found.to(draw(st.sampled_from(INTEGER_DTYPES)))
        return found if draw(st.booleans()) else found[0]

    return SameDocument(ids(m), draw(st.just(None)) if draw(st.booleans()) else ids(n))


@st.composite
def masks(draw: st.DrawFn, n: int, m: int, heads: int) -> Pattern:
    shape = (draw(st.sampled_from([1, BATCH])), draw(st.sampled_from([1, heads])), n, m)
    share = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    return Mask(chance(draw(st.integers(0, 1000)), share, *shape))


def leaves(n: int, m: int, heads: int = HEADS) -> st.SearchStrategy[Pattern]:
    """One pattern of any kind; a mask tells up to so many heads apart."""
    return st.one_of(
        windows(n, m),
        global_tokens(n, m),
        st.just(Causal()),
        st.builds(Strided, st.integers(1, 70)),
        fixed(n, m),
        documents(n, m),
        random_blocks(n, m),
        st.builds(BlockWindow, st.integers(1, 70), st.integers(0, 2), st.integers(0, 2)),
        masks(n, m, heads),
        st.just(Full()),
    )


@st.composite
def expressions(
    draw: st.DrawFn, n: int, m: int, *, depth: int = 3, heads: int = HEADS, per_head: bool = True
) -> Expression:
    """A leaf, a `PerHead`, or two expressions joined; at most `depth` operators deep."""
    kinds = ["leaf", *(["or", "and"] if depth else []), *(["per head"] if per_head else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "per head":
        inside = expressions(n, m, depth=min(depth, 1), heads=1, per_head=False)
        own = [draw(inside) for _ in range(HEADS)]
        dense = torch.cat([e.dense.expand(BATCH, 1, n, m) for e in own], dim=1)
        return Expression(PerHead([e.pattern for e in own]), dense)
    if kind == "leaf":
        pattern = draw(leaves(n, m, heads))
        return Expression(pattern, pattern.dense(n, m))
    options: dict[str, Any] = {"depth": depth - 1, "heads": heads, "per_head": per_head}
    left, right = draw(expressions(n, m, **options)), draw(expressions(n, m, **options))
    return left | right if kind == "or" else left & right


@st.composite
def problems(
    draw: st.DrawFn, count: int = 1, *, depth: int = 3
) -> tuple[int, int, list[Expression]]:
    """n, m and so many expressions for them."""
    n, m = draw(sizes)
    return n, m, [draw(expressions(n, m, depth=depth)) for _ in range(count)]
