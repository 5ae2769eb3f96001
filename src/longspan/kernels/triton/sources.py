"""Where the gradients of keys come from: sources, by the order of keys that they share.

A source is a walk and one of its parts. One order has every key, the base; what other orders sum
it finds by a slot for every key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ...layout import Layout, Order
from .arguments import PartValues, Rows, Vectors, captured

__all__ = ["KeyOrder", "Other", "Share", "Source", "shares"]


class KeyOrder(NamedTuple):
    keys: Tensor
    batch: int
    length: int


class Source(NamedTuple):
    """A walk's rows and one of its parts; for every tile of rows the keys that it meets."""

    rows: Rows
    part: PartValues
    low: Tensor
    high: Tensor
    places: int
    tiles: int


class Other(NamedTuple):
    """What another order has summed, in chunks, and every key's slot there, −1 for none."""

    slots: Tensor
    slots_batch: int
    dk: Vectors
    dv: Vectors
    chunks: int


@dataclass(eq=False)
class Share:
    """The sources, as numbers of walks and parts, of one order of keys."""

    order: KeyOrder
    indexed: bool
    sources: list[tuple[int, int]] = field(default_factory=list)
    slots: Tensor | None = None


def shares(layout: Layout) -> list[Share]:
    """The orders of a layout's keys, the base first; from the last time where the layout is the
    same.
    """
    first = layout.walks[0]
    # Padding takes keys away, but leaves their orders.
    plan = (first.unpadded or first).plan
    found: list[Share] | None = plan.get("triton keys")
    if found is None:
        found = _shares(layout)
        if not captured(first.parts[0].low.device):
            plan["triton keys"] = found
    return found


def _shares(layout: Layout) -> list[Share]:
    device = layout.walks[0].parts[0].low.device
    base = Share(KeyOrder(torch.zeros(1, dtype=torch.int32, device=device), 0, layout.m), False)
    found: dict[int, Share] = {}
    full = None
    for w, walk in enumerate(layout.walks):
        for p, part in enumerate(walk.parts):
            own = base
            if part.keys.index is not None:
                if id(part.keys) not in found:
                    found[id(part.keys)] = _share(part.keys, layout.m)
                own = found[id(part.keys)]
                if part.keys.stride > 1 and full is None:
                    full = own
            own.sources.append((w, p))
    others = list(found.values())
    if not base.sources and full is not None:
        base = full
        others.remove(full)
    return [base, *others]


def _share(order: Order, m: int) -> Share:
    assert order.index is not None
    index = order.index
    place = torch.arange(order.length, dtype=torch.int32, device=index.device)
    slots = torch.full((len(index), m), -1, dtype=torch.int32, device=index.device)
    slots.scatter_(1, index, place.expand_as(index).contiguous())
    batch = index.shape[1] if len(index) > 1 else 0
    return Share(
        KeyOrder(index.to(torch.int32).contiguous(), batch, order.length), True, slots=slots
    )
