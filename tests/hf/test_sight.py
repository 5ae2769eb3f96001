"""What is read from transformers' mask functions, against the masks that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.hf.sight import Sight, sight_of
from longspan.patterns import Causal, Full, Mask, SameDocument, Window

from .tiny import transformers

masks = transformers.masking_utils

IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0, 0, 1]])


def meant(sight: Sight) -> Tensor:
    """All pairs of it."""
    _, _, n, m = sight.shape
    dense = sight.pattern.dense(n, m)
    if sight.padding is not None:
        dense = dense & sight.padding[:, None, None]
    return dense.expand(2, 1, n, m)


RULES: dict[str, tuple[Callable[..., Any], type]] = {
    "everything": (masks.bidirectional_mask_function, Full),
    "causal": (masks.causal_mask_function, Causal),
    "window back": (masks.sliding_window_causal_mask_function(4), Window),
    "window around": (masks.sliding_window_bidirectional_mask_function(2), Window),
    "window of nothing": (masks.sliding_window_causal_mask_function(0), Mask),
    "window of itself": (masks.sliding_window_causal_mask_function(1), Window),
    "two windows": (
        masks.and_masks(
            masks.sliding_window_bidirectional_mask_function(5),
            masks.sliding_window_causal_mask_function(3),
        ),
        Window,
    ),
    "texts": (masks.packed_sequence_mask_function(IDS), SameDocument),
    "chunks": (masks.chunked_causal_mask_function(3, torch.tensor([0, 2])), Mask),
    "either": (
        masks.or_masks(masks.causal_mask_function, masks.packed_sequence_mask_function(IDS)),
        Mask,
    ),
    "somebody's own": (lambda b, h, q, k: (k <= q) & (k != 3), Mask),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_says_what_the_mask_says(rule: str, padded: bool) -> None:
    function, kind = RULES[rule]
    padding = None
    if padded:
        padding = torch.ones(2, 9, dtype=torch.bool)
        padding[0, :2], padding[1, 7:] = False, False
    found = sight_of(2, 9, 9, mask_function=function, attention_mask=padding)
    assert isinstance(found.pattern, kind)
    wanted = masks.sdpa_mask(2, 9, 9, 0, 0, function, padding, allow_is_causal_skip=False)
    assert torch.equal(meant(found), wanted.expand(2, 1, 9, 9))


def test_causal_within_texts_and_a_window() -> None:
    function = masks.and_masks(
        masks.sliding_window_causal_mask_function(2), masks.packed_sequence_mask_function(IDS)
    )
    found = sight_of(2, 9, 9, mask_function=function)
    assert found.allowed is None
    wanted = masks.sdpa_mask(2, 9, 9, 0, 0, function, allow_is_causal_skip=False)
    assert torch.equal(meant(found), wanted)


@pytest.mark.parametrize(("queries", "keys", "first"), [(1, 7, 0), (3, 7, 0), (2, 4, 3)])
@pytest.mark.parametrize("rule", ["causal", "window back"])
def test_queries_after_a_cache(rule: str, queries: int, keys: int, first: int) -> None:
    """Also one that has forgotten its first keys, while padding is told from the start."""
    function, kind = RULES[rule]
    padding = torch.rand(2, 7) < 0.7
    at = (first + keys - queries, first)
    found = sight_of(2, queries, keys, *at, function, padding)
    assert isinstance(found.pattern, kind) and found.first_key == first and found.aligned
    wanted = masks.sdpa_mask(2, queries, keys, *at, function, padding, allow_is_causal_skip=False)
    assert torch.equal(meant(found), wanted)


@pytest.mark.parametrize("start", [2, torch.tensor(2)])
def test_a_cache_that_is_larger_than_what_it_holds(start: int | Tensor) -> None:
    """Keys past the end of the mask are none."""
    padding = torch.tensor([[True, True, True, True], [False, True, True, True]])
    function = masks.causal_mask_function
    found = sight_of(2, 2, 9, start, 0, function, padding)
    assert not found.aligned
    wanted = masks.sdpa_mask(2, 2, 9, start, 0, function, padding, allow_is_causal_skip=False)
    assert torch.equal(meant(found), wanted)
    everything = sight_of(2, 2, 9, 0, 0, masks.bidirectional_mask_function, padding)
    assert torch.equal(meant(everything)[:, 0, 0, :4], padding)
    assert not meant(everything)[:, 0, 0, 4:].any()


def test_goes_where_a_mask_goes() -> None:
    padding = torch.ones(2, 9, dtype=torch.bool)
    found = sight_of(2, 9, 9, mask_function=masks.causal_mask_function, attention_mask=padding)
    assert found.shape == (2, 1, 9, 9) and found.ndim == 4
    moved = found.to("meta")
    assert moved.padding is not None and moved.padding.is_meta and moved.right == 0
    assert found.contiguous() is found
    assert sight_of(2, 9, 9, attention_mask=found) is found


def test_a_model_that_works_on_its_mask_is_told_so() -> None:
    sight = sight_of(2, 9, 9, mask_function=masks.causal_mask_function)
    mask: Any = sight
    for ask in (
        lambda: 0 + sight,
        lambda: torch.zeros(2, 1, 9, 9) + sight,
        lambda: sight[:, 0],
        lambda: torch.cat([mask, mask], dim=-1),
        lambda: torch.cat([torch.zeros(2, 1, 9, 9), mask], dim=-1),
        lambda: torch.where(mask, 0.0, 1.0),
    ):
        with pytest.raises(NotImplementedError, match="attn_implementation='eager'"):
            ask()
    with pytest.raises(AttributeError, match=r"no size.*attn_implementation='eager'"):
        sight.size()
    assert not hasattr(sight, "anything")
