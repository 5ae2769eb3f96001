"""Bad input: one error each, which names the argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from longspan.patterns import (
    AllOf,
    AnyOf,
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

IDS = torch.zeros(2, 5, dtype=torch.int64)
FLOATS = torch.zeros(2, 5)
BOOLS = torch.zeros(2, 5, dtype=torch.bool)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Window(-1, 0), ValueError, "Window: left .* -1"),
        (lambda: Window(0, -2), ValueError, "Window: right .* -2"),
        (lambda: Window(1, 1, 0), ValueError, "Window: dilation .* 0"),
        (lambda: Window(1, 1, -3), ValueError, "Window: dilation .* -3"),
        (lambda: Window(1.0, 1), TypeError, "Window: left .*1.0"),
        (lambda: Window(1, "2"), TypeError, "Window: right .*'2'"),
        (lambda: Window(True, 1), TypeError, "Window: left .*True"),
        (lambda: Window(1, False), TypeError, "Window: right .*False"),
        (lambda: Window(1, 1, True), TypeError, "Window: dilation .*True"),
        (lambda: Window(1, 1, None), TypeError, "Window: dilation .*None"),
        (lambda: Window(torch.tensor(1), 1), TypeError, "Window: left .*tensor"),
        (lambda: Window(2**31, 0), ValueError, "Window: left .*2147483647 .None.*, got 2147483648"),
        (lambda: Window(0, 2**63), ValueError, "Window: right .*2147483647 .None"),
        (lambda: Window(0, 0, 2**40), ValueError, "Window: dilation .*2147483647"),
        (lambda: BlockWindow(2**62), ValueError, "BlockWindow: block .*2147483647"),
        (lambda: BlockWindow(4, 2**62), ValueError, "BlockWindow: left .*2147483647"),
        (lambda: BlockWindow(4, 1, 2**31), ValueError, "BlockWindow: right .*2147483647"),
        (lambda: Strided(10**30), ValueError, "Strided: stride .*2147483647"),
        (lambda: Fixed(2**63, 1), ValueError, "Fixed: stride .*2147483647"),
        (lambda: Summaries(2**63, 1), ValueError, "Summaries: stride .*2147483647"),
        (lambda: Global(10**30), ValueError, "Global: tokens .*2147483647"),
        (lambda: Global(-(2**31)), ValueError, "Global: tokens .*2147483647"),
        (lambda: Random(1, 2**63), ValueError, "Random: block .*2147483647"),
        (lambda: BlockWindow(0), ValueError, "BlockWindow: block .* 0"),
        (lambda: BlockWindow(4, -1), ValueError, "BlockWindow: left .* -1"),
        (lambda: BlockWindow(4, 1, -1), ValueError, "BlockWindow: right .* -1"),
        (lambda: BlockWindow(True), TypeError, "BlockWindow: block .*True"),
        (lambda: BlockWindow(4, None), TypeError, "BlockWindow: left .*None"),
        (lambda: BlockWindow(4.0), TypeError, "BlockWindow: block .*4.0"),
        (lambda: Strided(0), ValueError, "Strided: stride .* 0"),
        (lambda: Strided(-3), ValueError, "Strided: stride .* -3"),
        (lambda: Strided(True), TypeError, "Strided: stride .*True"),
        (lambda: Strided(None), TypeError, "Strided: stride .*None"),
        (lambda: Strided(2.0), TypeError, "Strided: stride .*2.0"),
        (lambda: Fixed(0, 0), ValueError, "Fixed: stride .* 0"),
        (lambda: Fixed(4, -1), ValueError, "Fixed: summary .* -1"),
        (lambda: Fixed(4, 5), ValueError, "Fixed: summary .* 5"),
        (lambda: Fixed(4, True), TypeError, "Fixed: summary .*True"),
        (lambda: Fixed(4.0, 1), TypeError, "Fixed: stride .*4.0"),
        (lambda: Summaries(0, 0), ValueError, "Summaries: stride .* 0"),
        (lambda: Summaries(4, -1), ValueError, "Summaries: summary .* -1"),
        (lambda: Summaries(4, 5), ValueError, "Summaries: summary .* 5"),
        (lambda: Summaries(True, 1), TypeError, "Summaries: stride .*True"),
        (lambda: Global(), ValueError, "Global: .*tokens"),
        (lambda: Global(None), ValueError, "Global: .*tokens"),
        (
            lambda: Global([0, 9]),
            TypeError,
            r"Global: tokens .*got list.*torch\.tensor\(\[0, 9\]\)",
        ),
        (lambda: Global(1, queries=1), ValueError, "Global: .*tokens.* queries"),
        (lambda: Global(1, keys=1), ValueError, "Global: .*tokens.* keys"),
        (lambda: Global(1, False, False), ValueError, "Global: rows and columns"),
        (lambda: Global(True), TypeError, "Global: tokens .*True"),
        (lambda: Global(2.0), TypeError, "Global: tokens .*2.0"),
        (lambda: Global([0, 1]), TypeError, "Global: tokens .*list"),
        (lambda: Global(FLOATS), TypeError, "Global: tokens .*float32"),
        (lambda: Global(torch.tensor(3)), ValueError, r"Global: tokens .*\(\)"),
        (lambda: Global(IDS[None]), ValueError, r"Global: tokens .*\(1, 2, 5\)"),
        (lambda: Global(BOOLS[None]), ValueError, r"Global: tokens .*\(1, 2, 5\)"),
        (lambda: Global(1, rows=1), TypeError, "Global: rows .*1"),
        (lambda: Global(1, columns=None), TypeError, "Global: columns .*None"),
        (lambda: Global(queries=True), TypeError, "Global: queries .*True"),
        (lambda: Global(queries=FLOATS), TypeError, "Global: queries .*float32"),
        (lambda: Global(keys=FLOATS), TypeError, "Global: keys .*float32"),
        (lambda: Global(keys="0"), TypeError, "Global: keys .*'0'"),
        (lambda: Random(0), ValueError, "Random: blocks .* 0"),
        (lambda: Random(True), TypeError, "Random: blocks .*True"),
        (lambda: Random(2, 0), ValueError, "Random: block .* 0"),
        (lambda: Random(2, 1.5), TypeError, "Random: block .*1.5"),
        (lambda: Random(2, seed=0.5), TypeError, "Random: seed .*0.5"),
        (lambda: Random(2, seed=None), TypeError, "Random: seed .*None"),
        (lambda: Random(2, length=0), ValueError, "Random: length .* 0"),
        (lambda: Random(2, length=True), TypeError, "Random: length .*True"),
        (lambda: Random(2, 8, length=17, table=[[0], [1]]), ValueError, "Random: table .* 17"),
        (lambda: Random(2, table=torch.zeros(2, 2)), TypeError, "Random: table .*float32"),
        (lambda: Random(2, table=BOOLS), TypeError, "Random: table .*bool"),
        (lambda: Random(2, table=torch.tensor([1])), (TypeError, ValueError), "Random: table"),
        (lambda: Random(2, table=[[0.5]]), TypeError, "Random: table .*0.5"),
        (lambda: Random(2, table=[[True]]), TypeError, "Random: table .*True"),
        (lambda: Random(2, table=3), TypeError, "Random: table .*3"),
        (lambda: Random(2, table=[1, 2]), TypeError, "Random: table .*"),
        (lambda: SameDocument([0, 1]), TypeError, "SameDocument: ids .*list"),
        (lambda: SameDocument(FLOATS), TypeError, "SameDocument: ids .*float32"),
        (lambda: SameDocument(BOOLS), TypeError, "SameDocument: ids .*bool"),
        (lambda: SameDocument(IDS[None]), ValueError, r"SameDocument: ids .*\(1, 2, 5\)"),
        (lambda: SameDocument(torch.tensor(1)), ValueError, r"SameDocument: ids .*\(\)"),
        (lambda: SameDocument(IDS, FLOATS), TypeError, "SameDocument: query_ids .*float32"),
        (lambda: SameDocument(IDS, BOOLS), TypeError, "SameDocument: query_ids .*bool"),
        (lambda: SameDocument(IDS, IDS[None]), ValueError, "SameDocument: query_ids"),
        (lambda: Mask(BOOLS), ValueError, r"Mask: allowed .*\(2, 5\)"),
        (lambda: Mask(BOOLS[None]), ValueError, r"Mask: allowed .*\(1, 2, 5\)"),
        (lambda: Mask(FLOATS[None, None]), TypeError, "Mask: allowed .*float32"),
        (lambda: Mask(IDS[None, None]), TypeError, "Mask: allowed .*int64"),
        (lambda: Mask([[True]]), TypeError, "Mask: allowed .*list"),
        (lambda: PerHead([]), ValueError, "PerHead: patterns"),
        (lambda: PerHead([Causal(), None]), TypeError, "PerHead: patterns .*None"),
        (lambda: PerHead([BOOLS]), TypeError, "PerHead: patterns .*bool tensor"),
        (lambda: PerHead(Causal()), TypeError, "PerHead: patterns"),
        (lambda: PerHead(None), TypeError, "PerHead: patterns"),
        (lambda: AnyOf([]), ValueError, "AnyOf: patterns"),
        (lambda: AllOf([]), ValueError, "AllOf: patterns"),
        (lambda: AnyOf([Causal(), 3]), TypeError, "AnyOf: patterns .*3"),
        (lambda: AllOf([None]), TypeError, "AllOf: patterns .*None"),
        (lambda: longformer(-1), ValueError, "left|reach"),
        (lambda: longformer(True), TypeError, "left|reach"),
        (lambda: longformer(4, 1.5), TypeError, "tokens .*1.5"),
        (lambda: longformer(4, dilation=0), ValueError, "dilation .* 0"),
        (lambda: bigbird(0), ValueError, "bigbird: length .* 0"),
        (lambda: bigbird(512, block=0), ValueError, "block .* 0"),
        (lambda: bigbird(512, window=2), ValueError, "bigbird: window .* 2"),
        (lambda: bigbird(512, window=0), ValueError, "bigbird: window .* 0"),
        (lambda: bigbird(512, drawn=-1), ValueError, "bigbird: drawn .* -1"),
        (lambda: bigbird(512, ends=-1), ValueError, "bigbird: ends .* -1"),
        (lambda: bigbird(512, ends=True), TypeError, "bigbird: ends .*True"),
        (lambda: bigbird(512.0), TypeError, "bigbird: length .*512"),
        (lambda: bigbird(512, seed="a"), TypeError, "seed .*'a'"),
        (lambda: sparse_strided(0), ValueError, "stride .* 0"),
        (lambda: sparse_fixed(8, 9), ValueError, "summary .* 9"),
    ],
)
def test_constructors(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (Global(torch.zeros(3, 4, dtype=torch.int64)), "Global: tokens .* batch of 2"),
        (Global(torch.zeros(3, 7, dtype=torch.bool)), "Global: tokens .* batch of 2"),
        (Global(torch.zeros(2, 6, dtype=torch.bool)), "Global: tokens.* 7 positions"),
        (Global(torch.zeros(6, dtype=torch.bool)), "Global: tokens.* 7 positions"),
        (Global(queries=torch.zeros(2, 7, dtype=torch.bool)), "Global: queries.* 5 positions"),
        (Global(keys=torch.zeros(2, 5, dtype=torch.bool)), "Global: keys.* 7 positions"),
        (SameDocument(torch.zeros(2, 5, dtype=torch.int64)), r"SameDocument: ids .*\(2, 7\)"),
        (SameDocument(torch.zeros(3, 7, dtype=torch.int64)), r"SameDocument: ids .*\(2, 7\)"),
        (
            SameDocument(torch.zeros(7, dtype=torch.int64), torch.zeros(7, dtype=torch.int64)),
            r"SameDocument: query_ids .*\(2, 5\)",
        ),
        (Mask(torch.ones(1, 1, 7, 5, dtype=torch.bool)), r"Mask: allowed .* 5, 7\)"),
        (Mask(torch.ones(3, 1, 5, 7, dtype=torch.bool)), r"Mask: allowed .*\(2 or 1"),
        (Mask(torch.ones(1, 2, 5, 7, dtype=torch.bool)), r"Mask: allowed .* 3 or 1"),
        (Mask(torch.ones(1, 1, 1, 7, dtype=torch.bool)), r"Mask: allowed .* 5, 7\)"),
        (PerHead([Causal()] * 2), "PerHead: patterns .* 2 for 3 heads"),
        (Random(1, 2, length=6), "Random: .*length 6.* 7"),
    ],
)
def test_sizes_that_do_not_fit_the_call(pattern: Any, message: str) -> None:
    """For two samples, three heads, five queries and seven keys."""
    for whole in (pattern, pattern & Causal(), Window(1, 1) | pattern):
        with pytest.raises(ValueError, match=message):
            whole.check(2, 3, 5, 7)


@pytest.mark.parametrize("method", ["dense", "pairs", "draw", "hops"])
@pytest.mark.parametrize(
    ("n", "error"), [(-1, ValueError), (2.0, TypeError), (True, TypeError), (None, TypeError)]
)
def test_counts_of_queries_and_keys(method: str, n: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="n must be"):
        getattr(Causal(), method)(n)
    if method != "hops" and n is not None:
        with pytest.raises(error, match="m must be"):
            getattr(Full(), method)(3, n)


def test_a_mask_has_one_size() -> None:
    with pytest.raises(ValueError, match="Mask: allowed"):
        Mask(torch.ones(1, 1, 3, 3, dtype=torch.bool)).dense(4)


def test_a_dataclass_names_its_fields() -> None:
    """Two of them would count as the same otherwise."""
    with pytest.raises(TypeError, match=r"size is missing: write fields = \('size',\)"):

        @dataclass(frozen=True)
        class Near(Pattern):
            size: int
