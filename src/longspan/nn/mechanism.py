"""What a mechanism is: a way for queries to choose what they look at."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import describe, need_int
from ..functional.attention import attention
from ..functional.explain import Explanation, explain
from ..normalizers import Normalizer
from ..patterns import Pattern
from ..weights import Weight
from .global_tokens import KnownTokens

__all__ = ["NO_SETTING", "Asked", "Mechanism", "Setting", "head_size"]


class Setting(NamedTuple):
    """What a layer tells its mechanism, besides queries, keys and values.

    Attributes:
        x: the layer's input `(B, N, E)`, from which the queries were projected; for mechanisms with
            projections of their own.
        key_padding: bool `(B, M)`, True for a real token; the others do not exist.
        global_tokens: bool `(B, M)`, True for tokens that see everything and that everything sees.
        dropout: share of the probabilities to drop.
        weights: how much pairs count by the layer's own account, such as a bias by distance; they
            act before those of the mechanism.
        unturned: the queries as they were before rotary positions turned them, `(B, H, N, D)`; None
            where nothing did.
        within: the pairs that the layer lets exist, whatever the mechanism asks for, such as those
            of one document; None for all.
        scale: of the scores, where the layer has one of its own; None is 1/√D.
        known: the global tokens by their positions, where a model has found these once for all of
            its layers.
    """

    x: Tensor | None = None
    key_padding: Tensor | None = None
    global_tokens: Tensor | None = None
    dropout: float = 0.0
    weights: tuple[Weight, ...] = ()
    unturned: Tensor | None = None
    within: Pattern | None = None
    scale: float | None = None
    known: KnownTokens | None = None


NO_SETTING = Setting()


def head_size(owner: str, embed_dim: int, num_heads: int) -> int:
    """Channels of one head, if the channels of a layer are a multiple of its heads."""
    need_int(f"{owner}: embed_dim", embed_dim, at_least=1)
    need_int(f"{owner}: num_heads", num_heads, at_least=1)
    if embed_dim % num_heads:
        raise ValueError(
            f"{owner}: embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}"
        )
    return embed_dim // num_heads


class Asked(NamedTuple):
    """What a mechanism asks of `longspan.attention` in one call."""

    pattern: Pattern
    weight: tuple[Weight, ...] = ()
    normalizer: Normalizer | None = None


class Mechanism(nn.Module):
    """Attention as a module that holds only what its idea needs; projections are the layer's.

    One of your own says in `asks` which pairs exist and how much they count; the rest is here.

    A mechanism is called with q `(B, H, N, D)`, k and v `(B, Hk, M, D)` and a `Setting`, and gives
    `(B, H, N, Dv)`. What a sample gives does not depend on what else is in the batch, nor on
    batches before, but for learned windows that are causal or pooled: in training their budget is
    met by a running estimate, which stands still in evaluation.
    """

    @property
    def causal(self) -> bool:
        """Whether no query looks ahead: only such a mechanism can be a decoder's."""
        raise NotImplementedError(f"{type(self).__name__} has to say whether it is causal")

    @property
    def remembers(self) -> int | None:
        """How many of the last keys a later query can still reach, itself among them; None for all
        of them. A decoder keeps no more.
        """
        return None

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments with which such a mechanism is made again, as numbers, words and lists; tensors
        are in the state dict. See `describing`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no settings to be made again by")

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        """Which pairs of these queries with m keys exist, and how much they count."""
        raise NotImplementedError(f"{type(self).__name__} has to say what it asks")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        asked = self._asked(q, k, setting)
        return attention(
            q,
            k,
            v,
            asked.pattern,
            weight=(*setting.weights, *asked.weight) or None,
            normalizer=asked.normalizer,
            scale=setting.scale,
            key_padding=setting.key_padding,
            dropout=setting.dropout if self.training else 0.0,
        )

    def explain(
        self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING
    ) -> Explanation:
        """What a call would do: its pairs, its cost, and which backend runs it. Nothing is
        computed.
        """
        asked = self._asked(q, k, setting)
        return explain(
            q,
            k,
            v,
            asked.pattern,
            weight=(*setting.weights, *asked.weight) or None,
            normalizer=asked.normalizer,
            scale=setting.scale,
            key_padding=setting.key_padding,
        )

    def _asked(self, q: Tensor, k: Tensor, setting: Setting) -> Asked:
        """What `asks` gives, within what the layer lets exist."""
        for name in ("key_padding", "global_tokens"):
            mask = getattr(setting, name)
            if mask is not None and mask.dtype != torch.bool:
                raise TypeError(f"{name} must be a bool tensor (B, M), got {describe(mask)}")
        asked = self.asks(q, k.shape[2], setting)
        if not isinstance(asked, Asked):
            raise TypeError(
                f"{type(self).__name__}.asks must give Asked(pattern, weights, normalizer), got "
                f"{describe(asked)}"
            )
        if setting.within is None:
            return asked
        return asked._replace(pattern=asked.pattern & setting.within)
