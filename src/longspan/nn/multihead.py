"""Projections around a mechanism: a layer's attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import describe, need_bool, need_int, need_number, need_tensor
from ..patterns import Pattern
from .attention import Attention
from .casting import cast_once
from .global_tokens import KnownTokens
from .mechanism import Mechanism, Setting, head_size

__all__ = ["KeyCache", "MultiheadAttention"]


class KeyCache(Protocol):
    """Keys and values of tokens before these: a decoder's memory."""

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values with these new ones at the end."""


class MultiheadAttention(nn.Module):
    """Queries, keys and values from projections, any mechanism between them, and one projection
    back.

        y = W_o · mechanism(W_q x, W_k m, W_v m)      with m = memory, or x itself

    in heads of size E / num_heads.

    Differs from `torch.nn.MultiheadAttention`: batch first; `key_padding` is True for real tokens,
    as everywhere here; keys and values may have fewer heads than queries; no attention weights are
    given back (`longspan.attention_map` shows them).

    Args:
        embed_dim: E, channels of the input and of the output.
        num_heads: query heads that they are split into.
        mechanism: how queries choose what they look at; one for each layer. A pattern is
            `Attention(pattern)`.
        key_heads: heads of keys and values, a divisor of `num_heads`; None is as many.
        bias: whether projections add one.
        dropout: share of the probabilities to drop in training.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need" (arXiv 1706.03762); fewer key heads:
        Ainslie et al. 2023, "GQA" (arXiv 2305.13245).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mechanism: Mechanism | Pattern,
        *,
        key_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        key_heads = num_heads if key_heads is None else key_heads
        self.head_dim = head_size("MultiheadAttention", embed_dim, num_heads)
        need_int("MultiheadAttention: key_heads", key_heads, at_least=1)
        need_bool("MultiheadAttention: bias", bias)
        need_number("MultiheadAttention: dropout", dropout)
        if num_heads % key_heads:
            raise ValueError(
                "MultiheadAttention: num_heads must be a multiple of key_heads, got "
                f"{num_heads} and {key_heads}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(
                f"MultiheadAttention: dropout must be at least 0 and below 1, got {dropout}"
            )
        if isinstance(mechanism, Pattern):
            mechanism = Attention(mechanism)
        if not isinstance(mechanism, Mechanism):
            raise TypeError(
                "MultiheadAttention: mechanism must be a mechanism (longspan.nn) or a pattern "
                f"(longspan.patterns), got {describe(mechanism)}"
            )
        self.embed_dim, self.num_heads, self.key_heads = embed_dim, num_heads, key_heads
        self.dropout = float(dropout)
        for name in ("num_heads", "head_dim"):
            if getattr(mechanism, name, getattr(self, name)) != getattr(self, name):
                raise ValueError(
                    f"MultiheadAttention: mechanism must be made for embed_dim={embed_dim} and "
                    f"num_heads={num_heads}, got {name}={getattr(mechanism, name)}"
                )
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, key_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, key_heads * self.head_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.mechanism = mechanism
        # Whether its own projections start as copies of these.
        self._copied: bool = getattr(mechanism, "fresh", True)
        self.copy_projections()

    def copy_projections(self) -> None:
        """Makes projections that the mechanism has of its own copies of these, unless they were set
        before it came into this layer: whoever draws new initial weights calls it afterwards.
        """
        own: Any = getattr(self.mechanism, "copy_projections", None)
        if own is not None and self._copied:
            own(self.q_proj, self.k_proj, self.v_proj)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        key_padding: Tensor | None = None,
        global_tokens: Tensor | None = None,
        known: KnownTokens | None = None,
        turned: Callable[[Tensor], Tensor] | None = None,
        cache: KeyCache | None = None,
    ) -> Tensor:
        """Attends from every row of `x` to `memory`, or to `x` itself.

        Args:
            x: `(B, N, E)`.
            memory: `(B, M, E)`, where keys and values come from; None is x itself, and M is N.
            key_padding: bool `(B, M)`, True for a real token; the others do not exist.
            global_tokens: bool `(B, M)`, True for tokens that see everything and that everything
                sees, for mechanisms that take them; of self-attention only.
            known: these by their positions, as a model has found them once for all its layers.
            turned: what turns queries and keys `(B, H, N, D)` by their positions, for rotary ones.
            cache: keys and values of the tokens before x, which it is extended by. `key_padding`
                then has those tokens too; the last M of it count.

        Returns:
            `(B, N, E)`.
        """
        self._check(x, memory, None if cache is not None else key_padding, global_tokens)
        if memory is None:
            queries, keys, values = cast_once(x, 3)
        else:
            queries, (keys, values) = x, cast_once(memory, 2)
        q, k = self._heads(self.q_proj(queries)), self._heads(self.k_proj(keys))
        v = self._heads(self.v_proj(values))
        unturned = None
        if turned is not None:
            unturned, q, k = q, turned(q), turned(k)
        if cache is not None:
            k, v = cache.extended(k, v)
            if key_padding is not None:
                key_padding = key_padding[:, -k.shape[2] :]
        setting = Setting(
            x, key_padding, global_tokens, self.dropout, unturned=unturned, known=known
        )
        y = self.mechanism(q, k, v, setting)
        return self.out_proj(y.transpose(1, 2).flatten(2))

    def _heads(self, projected: Tensor) -> Tensor:
        """`(B, N, heads · size)` as `(B, heads, N, size)`."""
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _check(
        self,
        x: Tensor,
        memory: Tensor | None,
        key_padding: Tensor | None,
        global_tokens: Tensor | None,
    ) -> None:
        for name, value in (("x", x), ("memory", memory)):
            if value is None and name == "memory":
                continue
            need_tensor(f"MultiheadAttention: {name}", value, "float", (3,))
            assert value is not None
            if value.shape[2] != self.embed_dim:
                raise ValueError(
                    f"MultiheadAttention: {name} must have shape (batch, length, embed_dim) with "
                    f"embed_dim {self.embed_dim}, got {describe(value)}"
                )
        if memory is not None and memory.shape[0] != x.shape[0]:
            raise ValueError(
                "MultiheadAttention: memory must have the batch size of x, got "
                f"{memory.shape[0]} and {x.shape[0]}"
            )
        if memory is not None and global_tokens is not None:
            raise ValueError(
                "MultiheadAttention: global_tokens are of self-attention, where a token is a query "
                "and a key; leave them out with memory, or use Attention with "
                "Global(queries=…, keys=…)"
            )
        want = (x.shape[0], (x if memory is None else memory).shape[1])
        for name, value in (("key_padding", key_padding), ("global_tokens", global_tokens)):
            if value is None:
                continue
            if not isinstance(value, Tensor) or value.dtype != torch.bool:
                means = "a real" if name == "key_padding" else "a global"
                raise TypeError(
                    f"MultiheadAttention: {name} must be a bool tensor, True for {means} token, "
                    f"got {describe(value)}; turn a mask of numbers into one with .bool()"
                )
            if value.shape != want:
                raise ValueError(
                    f"MultiheadAttention: {name} must have shape (batch, keys) = {want}, got "
                    f"{describe(value)}"
                )

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, key_heads={self.key_heads}, "
            f"dropout={self.dropout:g}"
        )
