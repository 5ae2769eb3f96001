"""Which pairs exist in one call, compiled when a backend asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..patterns import Pattern
from ..remembering import Remembered
from .compile import Cut, compile_layout
from .parts import Layout

__all__ = ["Existence"]

_PADDED: Remembered[Layout] = Remembered()


@dataclass(frozen=True, eq=False)
class Existence:
    """The pairs of one call as a layout, in two forms; each is compiled when it is first asked for.

    Attributes:
        pattern: which pairs exist before weights and padding; None for none at all.
        exempts: for each weight, in order, the pairs that it leaves alone.
        cuts: computes what every weight cuts; None when none does.
        n: queries.
        m: keys.
        device: where the layout is wanted.
        merge: may a row's pairs be in two walks?
        key_padding: bool `(B, m)`, True for keys that exist, or None for all.
        stamp: as in `compile_layout`, of the padding too.
    """

    pattern: Pattern | None
    exempts: tuple[Pattern | None, ...]
    cuts: Callable[[], tuple[Cut, ...]] | None
    n: int
    m: int
    device: torch.device
    merge: bool
    key_padding: Tensor | None = None
    stamp: Tensor | None = None

    @cached_property
    def closed(self) -> Layout:
        """The pairs that exist."""
        if self.cuts is None:
            return self.open
        layout = self._compiled(self.cuts())
        return layout if self.key_padding is None else layout.with_padding(self.key_padding)

    @cached_property
    def open(self) -> Layout:
        """The pairs that would exist if no weight cut any: its reach has still to be applied, on
        the parts on which the weight is active.

        Static patterns, and the same tensors, have one for all calls, however far a weight learns
        to look. So have they with the same padding, which the layers of a model share.
        """
        layout = self._compiled(tuple([Cut(None, exempt) for exempt in self.exempts]))
        if self.key_padding is None or not layout.walks:
            return layout
        return _PADDED.found(
            lambda own: layout.with_padding(*own),
            [self.key_padding],
            layout,
            stamp=self.stamp,
        )

    def _compiled(self, cuts: tuple[Cut, ...]) -> Layout:
        if self.pattern is None:
            return Layout(self.n, self.m, ())
        return compile_layout(
            *(self.pattern, cuts, self.n, self.m, self.device),
            merge=self.merge,
            stamp=self.stamp,
        )
