"""Rows of what is added to a window: global tokens, and BigBird's random blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ....measure import Size
from ....patterns import Global, Pattern, Window, bigbird
from ..contenders import OURS, Bench, Variant, compared, ours, ratios
from ..floor import needs_of
from ..peers import FLEX, FLEX_SMALL, flex_pattern, flex_small_blocks
from ..records import Result
from .row import Row, size_fields
from .windows import REACH

__all__ = ["bigbird_pattern", "first_tokens", "pattern_row", "scattered_tokens"]

TOKENS = 32


def first_tokens(size: Size, device: torch.device) -> Pattern:
    """A window and the first 32 tokens."""
    return Window(REACH, REACH) | Global(TOKENS)


def scattered_tokens(size: Size, device: torch.device) -> Pattern:
    """A window and 32 tokens anywhere."""
    source = torch.Generator().manual_seed(0)
    drawn = torch.randperm(size.length, generator=source)[:TOKENS].sort().values
    return Window(REACH, REACH) | Global(drawn.to(device))


def bigbird_pattern(size: Size, device: torch.device) -> Pattern:
    """BigBird with blocks of 64, three of them drawn."""
    return bigbird(size.length, block=64, drawn=3)


def pattern_row(
    name: str,
    title: str,
    pattern: Callable[[Size, torch.device], Pattern],
    target: float,
) -> Row:
    """A pattern beside FlexAttention; the same target for both passes."""

    def run(bench: Bench) -> Result:
        size = bench.size()
        found = pattern(size, bench.device)
        contenders: dict[str, Sequence[Variant]] = {OURS: ours(bench, size, found)}
        if bench.peers:
            contenders[FLEX] = flex_pattern(bench, size, found)
            contenders[FLEX_SMALL] = flex_small_blocks(bench, size, found)
        entries = compared(bench, contenders, ("forward", "backward", "mask"))
        dense = pattern(size, torch.device("cpu")).dense(size.length)
        pairs = size.batch * size.heads * int(dense.sum())
        return Result(
            row=name,
            title=title,
            size=size_fields(size),
            pairs=pairs,
            needs=needs_of(size, pairs, bench.card),
            entries=entries,
            figures=[
                *ratios(entries, FLEX, {"forward": target, "backward": target}),
                *ratios(entries, FLEX_SMALL, {}, ("forward",)),
            ],
        )

    return Row(name=name, title=title, run=run, compiles=True)
