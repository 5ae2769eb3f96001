"""The least time that a pass can take on a card: its bytes at the rate of its memory, its flops at
the rate of its tensor cores.

Forward, q, k, v are read and o is written, once; backward those four and the output's gradient are
read, and three gradients written. A pair costs 4·D flops forward and 10·D backward, as on the CPU.
"""

from __future__ import annotations

from typing import NamedTuple

from ...measure import Size
from ..floor import flops_of
from .records import Need

__all__ = ["CARDS", "Card", "card_of", "needs_of", "step_of"]


class Card(NamedTuple):
    """Bytes and flops a second that plain copies and large matrix products reach, in bfloat16."""

    bytes: float
    flops: float


# Measured, not taken from data sheets.
CARDS = {"H200": Card(4.27e12, 790e12)}


def card_of(name: str) -> Card | None:
    """The rates of a card, found in its name; None when nobody has measured it."""
    return next((card for part, card in CARDS.items() if part in name), None)


def needs_of(size: Size, pairs: int, card: Card | None) -> dict[str, Need]:
    """What forward and backward cannot do without."""
    tensor = size.batch * size.heads * size.length * size.head_dim * size.dtype.itemsize
    forward, both = flops_of(pairs, size.head_dim)
    return {
        "forward": _need(4 * tensor, forward, card),
        "backward": _need(8 * tensor, both - forward, card),
    }


def step_of(needs: dict[str, Need]) -> Need:
    """What forward and backward need together."""
    found = list(needs.values())
    times = [(need.bytes_time, need.flops_time) for need in found]
    moved, flops = sum(need.bytes for need in found), sum(need.flops for need in found)
    if any(a is None or b is None for a, b in times):
        return Need(moved, flops)
    return Need(moved, flops, sum(a or 0.0 for a, _ in times), sum(b or 0.0 for _, b in times))


def _need(moved: int, flops: int, card: Card | None) -> Need:
    if card is None:
        return Need(moved, flops)
    return Need(moved, flops, 1e6 * moved / card.bytes, 1e6 * flops / card.flops)
