"""One block: attention, perhaps attention to another sequence, and two matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from ..nn import Mechanism, MultiheadAttention
from ..nn.global_tokens import KnownTokens
from .activations import activation_of
from .cache import LayerCache
from .config import Config
from .dropout import Dropout
from .positions import Rotary

__all__ = ["Block", "Surroundings"]


class Surroundings(NamedTuple):
    """What a block knows besides its tokens.

    Attributes:
        positions: of the tokens, int `(N,)` or `(B, N)`.
        key_padding: bool `(B, M)`, True for a real token.
        global_tokens: bool `(B, M)`, True for a global one.
        memory: what the encoder gave, `(B, L, E)`.
        memory_padding: bool `(B, L)`.
        known: the global tokens by their positions, if all blocks want as many of them.
    """

    positions: Tensor
    key_padding: Tensor | None = None
    global_tokens: Tensor | None = None
    memory: Tensor | None = None
    memory_padding: Tensor | None = None
    known: KnownTokens | None = None


class Block(nn.Module):
    """x + attention(x), x + attention(x, memory) in a decoder that has one, x + mlp(x); each part
    normalised before it or after it.
    """

    def __init__(
        self, config: Config, mechanism: Mechanism, cross: Mechanism | None = None
    ) -> None:
        super().__init__()
        self.before = config.norm == "pre"
        self.attention = self._attention(config, mechanism)
        self.attention_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.cross = None if cross is None else self._attention(config, cross)
        self.cross_norm = None if cross is None else nn.LayerNorm(config.width, config.norm_eps)
        hidden = 4 * config.width if config.hidden is None else config.hidden
        self.mlp = nn.Sequential(
            nn.Linear(config.width, hidden),
            activation_of(config.activation),
            nn.Linear(hidden, config.width),
        )
        self.mlp_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)
        rotary = config.positions == "rotary"
        self.rotary = Rotary(config.head_dim) if rotary else None

    @staticmethod
    def _attention(config: Config, mechanism: Mechanism) -> MultiheadAttention:
        own = config.attention_dropout
        return MultiheadAttention(
            config.width,
            config.heads,
            mechanism,
            key_heads=config.key_heads,
            dropout=config.dropout if own is None else own,
        )

    def forward(self, x: Tensor, around: Surroundings, cache: LayerCache | None = None) -> Tensor:
        rotary = self.rotary

        def turned(y: Tensor) -> Tensor:
            return y if rotary is None else rotary(y, around.positions)

        def looked(y: Tensor) -> Tensor:
            return self.attention(
                y,
                key_padding=around.key_padding,
                global_tokens=around.global_tokens,
                known=around.known,
                turned=turned,
                cache=cache,
            )

        x = self._with(x, self.attention_norm, looked)
        if self.cross is not None and self.cross_norm is not None:
            cross = self.cross

            def looked_over(y: Tensor) -> Tensor:
                return cross(y, around.memory, key_padding=around.memory_padding)

            x = self._with(x, self.cross_norm, looked_over)
        return self._with(x, self.mlp_norm, self.mlp)

    def _with(self, x: Tensor, norm: nn.LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.before:
            return x + self.dropout(part(norm(x)))
        normed: Tensor = norm(x + self.dropout(part(x)))
        return normed
