"""One transformer: encoder, decoder, or both, with any mechanism in any layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import describe
from ..nn import Attention, Mechanism, MultiheadAttention, pool_budgets
from ..nn.global_tokens import KnownTokens
from ..patterns import Pattern
from ..remembering import lasting
from .block import Block, Surroundings
from .cache import Cache
from .config import Config
from .dropout import Dropout
from .positions import Sinusoidal

__all__ = ["Decoder", "Encoder", "EncoderDecoder", "Mechanisms"]

Choice = Mechanism | Pattern

# One for every layer: a list of them, a function of the layer's number, or a pattern for all.
Mechanisms = Pattern | Sequence[Choice] | Callable[[int], Choice]


def _listed(mechanisms: Mechanisms, layers: int) -> list[Mechanism]:
    _check_kind(mechanisms)
    if isinstance(mechanisms, Pattern):
        return [Attention(mechanisms) for _ in range(layers)]
    if callable(mechanisms):
        return [_mechanism(mechanisms(layer)) for layer in range(layers)]
    if len(mechanisms) != layers:
        raise ValueError(
            f"mechanisms must be one for each of {layers} layers, got {len(mechanisms)}; a "
            "function of the layer's number makes as many as there are"
        )
    found = [_mechanism(own) for own in mechanisms]
    if len({id(own) for own in found}) != layers:
        raise ValueError("mechanisms must be a new one for every layer, got one of them twice")
    return found


def _mechanism(given: Choice) -> Mechanism:
    return Attention(given) if isinstance(given, Pattern) else given


def _check_kind(mechanisms: Any) -> None:
    """A module and a class can be called, too, and are no functions of the layer's number."""
    named = isinstance(mechanisms, (nn.Module, type, str))
    if not named and (callable(mechanisms) or isinstance(mechanisms, (Pattern, Sequence))):
        return
    raise TypeError(
        "mechanisms must be a list with one for every layer, a function of the layer's number, or "
        f"a pattern for all, got {describe(mechanisms)}; lambda layer: … makes a new one for every "
        "layer"
    )


class _Stack(nn.Module):
    """Tokens in, their last vectors out."""

    def __init__(
        self, config: Config, mechanisms: Mechanisms, cross: Callable[[int], Mechanism] | None
    ) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions: nn.Module | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.length, config.width)
        elif config.positions == "sinusoidal":
            self.positions = Sinusoidal(config.width)
        self.types = nn.Embedding(config.types, config.width) if config.types else None
        self.embedding_norm: nn.Module = nn.Identity()
        if config.embedding_norm:
            self.embedding_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)
        own = _listed(mechanisms, config.layers)
        pool_budgets(own)
        self.blocks = nn.ModuleList(
            Block(config, mechanism, None if cross is None else cross(layer))
            for layer, mechanism in enumerate(own)
        )
        last = config.norm == "pre"
        self.norm = nn.LayerNorm(config.width, config.norm_eps) if last else nn.Identity()
        # What a mechanism has of its own, it has drawn, or loaded.
        theirs = {
            part for own in self.modules() if isinstance(own, Mechanism) for part in own.modules()
        }
        self.apply(lambda part: None if part in theirs else _initialise(part))
        for part in self.modules():
            if isinstance(part, MultiheadAttention):
                part.copy_projections()

    @property
    def mechanisms(self) -> list[Mechanism]:
        """Those of self-attention, layer by layer."""
        return [block.attention.mechanism for block in self.blocks]  # type: ignore[union-attr,misc]

    def _places(self, tokens: Tensor, before: int = 0) -> Tensor:
        """Positions `(N,)` of tokens `(B, N)`, after so many before them."""
        if not isinstance(tokens, Tensor) or tokens.dim() != 2:
            raise ValueError(
                f"tokens must be (batch, length), got {describe(tokens)}; of one text give "
                "tokens[None]"
            )
        return torch.arange(before, before + tokens.shape[1], device=tokens.device)

    def _embedded(
        self, tokens: Tensor, positions: Tensor, types: Tensor | None = None, *, before: int = 0
    ) -> Tensor:
        if self.config.positions == "learned" and positions.dim() == 1:
            last = before + positions.shape[0]
            if last > self.config.length:
                raise ValueError(
                    f"tokens must be at most {self.config.length}, the config's length, got "
                    f"{last}{' with those before them' if before else ''}; rotary and sinusoidal "
                    "positions have no end"
                )
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        elif types is not None:
            raise ValueError(
                "types: the tokens of this model are of no types; make it with Config(types=2) or "
                "more, or leave them out"
            )
        found: Tensor = self.dropout(self.embedding_norm(x))
        return found

    def _through(self, x: Tensor, around: Surroundings, cache: Cache | None) -> Tensor:
        if not torch.compiler.is_compiling():
            positions = None if around.known is None else around.known.few.positions
            lasting(around.key_padding, around.global_tokens, around.memory_padding, positions)
        for number, block in enumerate(self.blocks):
            x = block(x, around, None if cache is None else cache.layers[number])
        found: Tensor = self.norm(x)
        return found


def _initialise(module: nn.Module) -> None:
    """Weights of a standard deviation of 0.02, biases of 0 (GPT-2)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Encoder(_Stack):
    """Every token may look both ways.

    Args:
        config: sizes.
        mechanisms: one for every layer.
    """

    def __init__(self, config: Config, mechanisms: Mechanisms) -> None:
        super().__init__(config, mechanisms, None)

    def forward(
        self,
        tokens: Tensor,
        *,
        key_padding: Tensor | None = None,
        global_tokens: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """`(B, N, width)` for tokens `(B, N)`.

        Args:
            key_padding: bool `(B, N)`, True for a real token.
            global_tokens: bool `(B, N)`, True for a global one.
            types: int `(B, N)`, below the config's `types`; None is all of type 0.
        """
        positions = self._places(tokens)
        known = self._known(global_tokens, key_padding)
        around = Surroundings(positions, key_padding, global_tokens, known=known)
        return self._through(self._embedded(tokens, positions, types), around, None)

    def _known(self, tokens: Tensor | None, real: Tensor | None) -> KnownTokens | None:
        """Global tokens by their positions, if all mechanisms want as many of them. Blocks that are
        compiled one by one would each find them anew. What is no mask is left to them.
        """
        if tokens is None or not _are_masks(tokens, real):
            return None
        mechanisms = self.mechanisms
        (most, *others) = {getattr(own, "most_global", None) for own in mechanisms}
        if most is None or others:
            return None
        return KnownTokens.of(type(mechanisms[0]).__name__, tokens, real, most)


def _are_masks(tokens: Tensor, real: Tensor | None) -> bool:
    masks = [tokens] if real is None else [tokens, real]
    return all(
        isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == masks[0].shape
        for mask in masks
    )


class Decoder(_Stack):
    """No token looks ahead; with a `memory` its blocks also look at an encoder's tokens.

    Args:
        config: sizes.
        mechanisms: one for every layer, all of them causal.
        cross: whether it has a memory.
    """

    def __init__(self, config: Config, mechanisms: Mechanisms, *, cross: bool = False) -> None:
        if config.types:
            raise ValueError(
                f"types are of an encoder's tokens: a decoder's config has 0, got {config.types}"
            )
        super().__init__(config, mechanisms, (lambda layer: Attention()) if cross else None)
        self.cross = cross
        for layer, mechanism in enumerate(self.mechanisms):
            if not mechanism.causal:
                raise ValueError(
                    f"a decoder's mechanisms must be causal, that of layer {layer} looks ahead: "
                    f"{mechanism}. Mechanisms with causal=True do not, nor does "
                    "Attention(Causal() & pattern), unless its pairs change with the length of the "
                    "text: give Random a length, and name no last tokens as Global(-n) does"
                )

    def new_cache(self) -> Cache:
        """An empty cache, for `forward`."""
        return Cache([mechanism.remembers for mechanism in self.mechanisms])

    def forward(
        self,
        tokens: Tensor,
        *,
        key_padding: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """`(B, N, width)` for tokens `(B, N)`, the ones after those in the cache.

        Args:
            key_padding: bool `(B, N)`, True for a real token. Padding on the left counts as
                positions.
            memory: an encoder's `(B, L, width)`, of a decoder with `cross`, and of no other.
            memory_padding: bool `(B, L)`.
            cache: tokens before these; it is extended.
        """
        if (memory is not None) != self.cross:
            missing = "memory is missing: a decoder with cross=True looks at an encoder's tokens"
            unasked = "memory has nobody to look at it: make the decoder with cross=True"
            raise ValueError(f"Decoder: {missing if self.cross else unasked}")
        start = 0 if cache is None else cache.length
        positions = self._places(tokens, start)
        x, real = self._embedded(tokens, positions, before=start), key_padding
        if cache is not None:
            # After all that may raise: a cache that was refused more tokens stays as it was.
            real = _remembered(cache, key_padding, tokens)
        around = Surroundings(positions, real, None, memory, memory_padding)
        return self._through(x, around, cache)


def _remembered(cache: Cache, real: Tensor | None, tokens: Tensor) -> Tensor | None:
    """Which tokens are real, those in the cache first; the cache then has them too."""
    if cache.real is not None or real is not None:
        batch, n = tokens.shape
        before, now = cache.real, real
        if before is None:
            before = torch.ones(batch, cache.length, dtype=torch.bool, device=tokens.device)
        if now is None:
            now = torch.ones(batch, n, dtype=torch.bool, device=tokens.device)
        cache.real = torch.cat([before, now], 1)
    cache.length += tokens.shape[1]
    return cache.real


class EncoderDecoder(nn.Module):
    """An encoder, and a decoder that looks at its tokens; they share the embedding.

    Args:
        config: sizes of both.
        encoder: mechanisms of the encoder's layers.
        decoder: of the decoder's.
    """

    def __init__(self, config: Config, encoder: Mechanisms, decoder: Mechanisms) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, encoder)
        self.decoder = Decoder(config, decoder, cross=True)
        self.decoder.tokens = self.encoder.tokens

    def forward(
        self,
        tokens: Tensor,
        target: Tensor,
        *,
        key_padding: Tensor | None = None,
        global_tokens: Tensor | None = None,
        target_padding: Tensor | None = None,
    ) -> Tensor:
        """`(B, T, width)` for the target's tokens `(B, T)`, given tokens `(B, N)`."""
        memory = self.encoder(tokens, key_padding=key_padding, global_tokens=global_tokens)
        found: Tensor = self.decoder(
            target, key_padding=target_padding, memory=memory, memory_padding=key_padding
        )
        return found
