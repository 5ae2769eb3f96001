from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longspan.patterns import (
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
    sparse_strided,
)
from longspan.patterns.expressions import parse_pattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("Full()", Full()),
        (" Window(3, 1)\n", Window(3, 1)),
        ("Window(None, 0, dilation=2)", Window(None, 0, 2)),
        ("Window(left=1, right=2)", Window(1, 2)),
        ("Causal() & (Window(4, 0) | Strided(4))", Causal() & (Window(4, 0) | Strided(4))),
        # As in Python, & binds tighter than |.
        ("Causal() & Window(4, 0) | Global(1)", (Causal() & Window(4, 0)) | Global(1)),
        ("Global(-2, columns=False)", Global(-2, columns=False)),
        ("PerHead([Causal(), Fixed(4, 1)])", PerHead([Causal(), Fixed(4, 1)])),
        ("Random(1, block=2, table=[[0], [0, 1]])", Random(1, 2, table=[[0], [0, 1]])),
        ("longformer(2, tokens=1, causal=True)", longformer(2, 1, causal=True)),
        ("bigbird(16, block=2)", bigbird(16, block=2)),
        ("sparse_strided(4)", sparse_strided(4)),
    ],
)
def test_reads_what_python_would(text: str, pattern: Pattern) -> None:
    assert parse_pattern(text) == pattern


@given(left=st.integers(0, 9), right=st.integers(0, 9), stride=st.integers(1, 9))
def test_reads_what_a_pattern_prints(left: int, right: int, stride: int) -> None:
    pattern = (Window(left, right, stride) | Global(left) | Random(2, 4)) & Strided(stride)
    assert parse_pattern(repr(pattern)) == pattern


def test_lists_of_numbers_are_tensors() -> None:
    documents = parse_pattern("SameDocument([0, 0, 1], query_ids=[1])")
    assert isinstance(documents, SameDocument)
    assert documents.ids.tolist() == [0, 0, 1]
    assert documents.query_ids is not None and documents.query_ids.tolist() == [1]
    mask = parse_pattern("Mask([[[[True, False], [False, True]]]])")
    assert isinstance(mask, Mask)
    assert torch.equal(mask.allowed, torch.eye(2, dtype=torch.bool)[None, None])
    tokens = parse_pattern("Global([[1, 2], [3, 4]])")
    assert isinstance(tokens, Global) and isinstance(tokens.tokens, torch.Tensor)
    assert tokens.tokens.tolist() == [[1, 2], [3, 4]]


def test_names_stand_for_what_they_are_given() -> None:
    ids = torch.tensor([0, 1])
    documents = parse_pattern("SameDocument(ids)", {"ids": ids})
    assert isinstance(documents, SameDocument) and documents.ids is ids
    assert parse_pattern("Strided(n) | Global(-n)", {"n": 3}) == Strided(3) | Global(-3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not an expression"),
        ("Window(3", "is not an expression"),
        ("Causal() &", "is not an expression"),
        ("x = Causal()", "is not an expression"),
        ("3", "is not a pattern"),
        ("[Causal()]", "is not a pattern"),
        ("Causal", "Causal needs its arguments"),
        ("Cousal()", "there is no pattern 'Cousal'"),
        ("Pattern()", "there is no pattern 'Pattern'"),
        ("eval('1')", "there is no pattern 'eval'"),
        ("Causal().dense(4)", "cannot read"),
        ("(lambda: Causal())()", "cannot read"),
        ("Causal() if True else Full()", "cannot read"),
        ("Causal() + Full()", "cannot read"),
        ("~Causal()", "cannot read"),
        ("-Causal()", "cannot read"),
        ("Window(-True, 3)", "cannot read '-True'"),
        ("Causal() and Full()", "cannot read"),
        ("[Causal() for x in [1]][0]", "cannot read"),
        ("Window('3', 3)", "cannot read \"'3'\""),
        ("Window(3.0, 3)", "cannot read '3.0'"),
        ("Window(1 + 2, 3)", "cannot read"),
        ("Window(*[1, 2])", "cannot read"),
        ("Window(**{})", r"\*\* is not read"),
        ("Window(n, 3)", "cannot read 'n'"),
        ("Window(3)", r"Window: missing .* 'right'; it takes \(left, right, dilation\)"),
        ("Window(1, 2, 3, 4)", "Window: too many positional arguments"),
        ("Window(1, 2, wide=3)", "Window: got an unexpected keyword argument 'wide'"),
        ("Window(-1, 2)", "Window: left must be at least 0, got -1"),
        ("Window(True, 2)", "Window: left must be an int, got bool True"),
        ("Window(99999999999, 2)", "99999999999 is too large"),
        ("Global([1, Causal()])", "a list holds patterns or numbers"),
        ("PerHead([])", "at least one pattern, got none"),
        ("PerHead([PerHead([Full()])])", "cannot be inside another"),
        ("Causal() | 3", "and '3' is none"),
        ("[1] & Causal()", r"and '\[1\]' is none"),
        ("|".join(["Causal()"] * 5000), "nested too deeply"),
    ],
)
def test_refuses_everything_else(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_pattern(text)


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_pattern(text), Pattern)


def test_every_pattern_can_be_written() -> None:
    assert parse_pattern("Summaries(4, 1)") == Summaries(4, 1)
