"""A sliding window with global tokens of each sample's own: Longformer's attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..errors import need_bool, need_int
from ..patterns import Pattern, PerHead, Window
from .causality import keys_remembered
from .global_rows import GlobalRows
from .mechanism import Asked, Setting

__all__ = ["SlidingWindow"]


class SlidingWindow(GlobalRows):
    """Every token sees its neighbours, and a few global tokens see and are seen by all.

        y_i = softmax(q_i · k_jᵀ / √D) v_j      over j = i + δ·dilation, −left ≤ δ ≤ right,
                                                and all global j, in one softmax
        y_g = softmax(q′_g · k′_jᵀ / √D) v′_j   over all j, for global g

    where q′, k′ and v′ are the mechanism's own projections of the layer's input. They start as
    copies of the layer's (`MultiheadAttention` sees to it, unless they were loaded or copied
    before), and cost nothing in a call without global tokens: in training their gradient is 0 then.
    Without `global_projections`, global rows use the layer's q, k and v.

    Which tokens are global comes with the call, and may differ from sample to sample. Their rows
    are gathered, so every sample costs as many rows as the one with the most of them. To know how
    many that are means waiting for the GPU, unless `most_global` says it.

    Differs from the paper's and from Hugging Face's code: it takes any length, without padding to a
    multiple of the window; each side and each head may have its own window; a pair exists or does
    not, where they add −10000 to the score; rows of padded tokens are computed like others, not set
    to 0. `longspan.hf.from_longformer` loads checkpoints.

    Args:
        embed_dim: channels of the layer.
        num_heads: query heads that they are split into.
        left: steps to the left; an int, or a list with one for each head. Half of the paper's w.
        right: steps to the right, likewise; None is as many as to the left, or 0 when causal.
        dilation: tokens a step, likewise.
        causal: no token looks ahead. Such a window takes no global tokens.
        global_projections: global rows have projections of their own.
        most_global: no sample has more global tokens than this, padded ones not counted, so that a
            GPU need not be waited for, and looks for no more. More of them raise on a CPU, and give
            NaN in their rows elsewhere.

    Attributes:
        fresh: the global projections are as they were made, neither copied nor loaded yet.

    Reference:
        Beltagy, Peters, Cohan 2020, "Longformer: The Long-Document Transformer" (arXiv 2004.05150).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        left: int | Sequence[int],
        right: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        causal: bool = False,
        global_projections: bool = True,
        most_global: int | None = None,
    ) -> None:
        need_bool("SlidingWindow: causal", causal)
        super().__init__(
            embed_dim,
            num_heads,
            # A causal window never has a global row.
            global_projections=global_projections and not causal,
            most_global=most_global,
        )
        if right is None:
            right = 0 if causal else left
        lefts = _for_heads("left", left, num_heads, at_least=0)
        rights = _for_heads("right", right, num_heads, at_least=0)
        steps = _for_heads("dilation", dilation, num_heads, at_least=1)
        if causal and any(rights):
            raise ValueError(
                f"SlidingWindow: right must be 0 in a causal window, got {right}; leave it out"
            )
        windows = [Window(*each) for each in zip(lefts, rights, steps, strict=True)]
        alike = all(window == windows[0] for window in windows)
        self.window: Pattern = windows[0] if alike else PerHead(windows)
        self.is_causal = causal

    @property
    def causal(self) -> bool:
        return self.is_causal

    @property
    def settings(self) -> dict[str, Any]:
        windows = self.window.patterns if isinstance(self.window, PerHead) else (self.window,)
        sides = [(own.left, own.right, own.dilation) for own in windows if isinstance(own, Window)]
        lefts, rights, steps = (list(side) for side in zip(*sides, strict=True))
        one = len(sides) == 1
        return {
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "left": lefts[0] if one else lefts,
            "right": rights[0] if one else rights,
            "dilation": steps[0] if one else steps,
            "causal": self.is_causal,
            "global_projections": self.global_projections,
            "most_global": self.most_global,
        }

    @property
    def remembers(self) -> int | None:
        return keys_remembered(self.window) if self.is_causal else None

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        if setting.global_tokens is not None and self.is_causal:
            raise ValueError(
                "SlidingWindow: a causal window takes no global_tokens, whose rows would look "
                "ahead; use Attention(Causal() & (Window(left, 0) | Global(tokens))), in which "
                "they look back only"
            )
        whole = self._global(setting)
        return Asked(self.window if whole is None else self.window | whole)

    def extra_repr(self) -> str:
        return (
            f"heads={self.num_heads}, window={self.window!r}, causal={self.is_causal}, "
            f"global_projections={self.global_projections}"
        )


def _for_heads(name: str, value: int | Sequence[int], heads: int, *, at_least: int) -> list[int]:
    """One number for each head."""
    if not isinstance(value, (list, tuple)):
        need_int(f"SlidingWindow: {name}", value, at_least=at_least)
        assert isinstance(value, int)
        return [value] * heads
    if len(value) != heads:
        raise ValueError(
            f"SlidingWindow: {name} must be an int or a list with one for each of {heads} heads, "
            f"got {len(value)}"
        )
    for each in value:
        need_int(f"SlidingWindow: {name}", each, at_least=at_least)
    return list(value)
