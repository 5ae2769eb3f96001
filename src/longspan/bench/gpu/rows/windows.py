"""Rows of fixed windows, beside FlexAttention and FlashAttention-2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....patterns import Window
from ..contenders import OURS, Bench, Variant, compared, ours, ratios
from ..draws import pairs_of_window
from ..floor import needs_of
from ..peers import FLASH, FLEX, FLEX_SMALL, flash_window, flex_pattern, flex_small_blocks
from ..records import Result
from .row import Row, size_fields

__all__ = ["REACH", "window_row"]

REACH = 128

Targets = Mapping[str, float | tuple[float, float]]


def window_row(
    name: str,
    targets: Targets,
    *,
    reach: int = REACH,
    batch: int = 4,
    length: int = 4096,
    head_dim: int = 64,
    small_blocks: bool = False,
) -> Row:
    """A window of so many tokens each side; with `small_blocks`, beside FlexAttention's forward
    with smaller blocks too.
    """

    def run(bench: Bench) -> Result:
        size = bench.size(batch=batch, length=length, head_dim=head_dim)
        window = Window(reach, reach)
        contenders: dict[str, Sequence[Variant]] = {OURS: ours(bench, size, window)}
        if bench.peers:
            contenders[FLEX] = flex_pattern(bench, size, window)
            if small_blocks:
                contenders[FLEX_SMALL] = flex_small_blocks(bench, size, window)
            contenders[FLASH] = flash_window(bench, size, reach)
        entries = compared(bench, contenders, ("forward", "backward", "mask"))
        pairs = pairs_of_window(size, reach)
        return Result(
            row=name,
            title=_title(reach, size.batch, size.length, head_dim),
            size=size_fields(size),
            pairs=pairs,
            needs=needs_of(size, pairs, bench.card),
            entries=entries,
            figures=[
                *ratios(entries, FLEX, targets),
                *ratios(entries, FLEX_SMALL, {}, ("forward",)),
                *ratios(entries, FLASH, {}),
            ],
        )

    title = _title(reach, batch, length, head_dim)
    return Row(name=name, title=title, run=run, compiles=True)


def _title(reach: int, batch: int, length: int, head_dim: int) -> str:
    return f"window of {reach} each side, B={batch} N={length:,} D={head_dim}"
