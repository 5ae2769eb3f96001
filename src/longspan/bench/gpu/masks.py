"""A longspan pattern as a mask function of FlexAttention: the same pairs, told in its language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...patterns import AnyOf, BlockWindow, Global, Pattern, Random, Window

__all__ = ["Mask", "bell_score", "mask_of", "reach_mask"]

# (sample, head, query, key) → whether the pair exists; each is a tensor with one number.
Mask = Callable[[Any, Any, Any, Any], Any]


def mask_of(pattern: Pattern, n: int, device: torch.device) -> Mask:
    """The mask function of windows, global tokens, random blocks, and unions of them.

    What numbers can tell is told by numbers, as the compiler likes it best; only scattered tokens
    and drawn blocks are looked up.
    """
    if isinstance(pattern, AnyOf):
        masks = [mask_of(part, n, device) for part in pattern.children()]
        return _any_of(masks[0], masks[1:])
    if isinstance(pattern, Window) and pattern.dilation == 1:
        return _window(pattern, n)
    if isinstance(pattern, BlockWindow):
        return _blocks(pattern.block, pattern.left, pattern.right)
    if isinstance(pattern, Random):
        return _drawn(pattern, n, device)
    if isinstance(pattern, Global) and pattern.rows and pattern.columns:
        if isinstance(pattern.tokens, int):
            return _ends(pattern.tokens, n)
        members = pattern.global_columns(n, n, device)
        if members is not None and members.shape[0] == 1:
            return _looked_up(members[0])
    raise ValueError(f"there is no mask function for {pattern!r}")


def reach_mask(reach: Tensor) -> Mask:
    """A reach for every query, int `(B, H, N)`."""
    return lambda b, h, i, j: (i - j).abs() <= reach[b, h, i]


def bell_score(variance: Tensor) -> Callable[[Any, Any, Any, Any, Any], Any]:
    """The score function of a bell whose variance `(B, H, N)` learns."""

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        d = i - j
        return s - d * d / (2 * variance[b, h, i])

    return score


def _any_of(first: Mask, rest: list[Mask]) -> Mask:
    if not rest:
        return first
    second = _any_of(rest[0], rest[1:])
    return lambda b, h, i, j: first(b, h, i, j) | second(b, h, i, j)


def _window(pattern: Window, n: int) -> Mask:
    left = n if pattern.left is None else pattern.left
    right = n if pattern.right is None else pattern.right
    if left == right:
        return lambda b, h, i, j: (i - j).abs() <= left
    return lambda b, h, i, j: (i - j <= left) & (j - i <= right)


def _blocks(block: int, left: int, right: int) -> Mask:
    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        offset = j // block - i // block
        return (offset >= -left) & (offset <= right)

    return mask


def _ends(tokens: int, n: int) -> Mask:
    if tokens >= 0:
        return lambda b, h, i, j: (i < tokens) | (j < tokens)
    first = n + tokens
    return lambda b, h, i, j: (i >= first) | (j >= first)


def _looked_up(members: Tensor) -> Mask:
    return lambda b, h, i, j: members[i] | members[j]


def _drawn(pattern: Random, n: int, device: torch.device) -> Mask:
    block = pattern.block
    total = -(-n // block)
    table = torch.zeros(total, total, dtype=torch.bool)
    for row, keys in enumerate(pattern.table_for(n)[:total]):
        for key in keys:
            if 0 <= key < total:
                table[row, key] = True
    table = table.to(device)
    return lambda b, h, i, j: table[i // block, j // block]
