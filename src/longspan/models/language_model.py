"""A decoder that predicts the next token, and an encoder–decoder that translates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import need_tensor
from ..nn.modes import evaluating
from .cache import Cache
from .config import Config
from .generation import beam_search, generate
from .heads import LanguageModelling
from .transformer import Decoder, EncoderDecoder, Mechanisms

__all__ = ["LanguageModel", "Translator"]


class LanguageModel(nn.Module):
    """Scores of the next token, for every token.

    Args:
        config: sizes.
        mechanisms: one for every layer, all of them causal.
    """

    def __init__(self, config: Config, mechanisms: Mechanisms) -> None:
        super().__init__()
        self.config = config
        self.decoder = Decoder(config, mechanisms)
        self.head = LanguageModelling(self.decoder.tokens)

    def forward(
        self, tokens: Tensor, *, key_padding: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """`(B, N, vocab)` for tokens `(B, N)`."""
        found: Tensor = self.head(self.decoder(tokens, key_padding=key_padding, cache=cache))
        return found

    @torch.no_grad()
    def generate(
        self, tokens: Tensor, steps: int, *, key_padding: Tensor | None = None, beams: int = 1,
        **options: Any,
    ) -> Tensor:  # fmt: skip
        """Tokens `(B, N)` and what follows them; options as for `generation.generate`, or with
        several beams for `generation.beam_search`. Beginnings of different lengths are padded on
        the left.
        """
        if key_padding is not None:
            _need_real_ends(key_padding)
        cache, padding = self.decoder.new_cache(), key_padding
        if padding is not None and beams > 1:
            padding = padding.repeat_interleave(beams, 0)
        first = True

        def next_scores(new: Tensor, cache: Cache) -> Tensor:
            nonlocal first
            own = padding if first else None
            first = False
            return self.head(self.decoder(new, key_padding=own, cache=cache)[:, -1])

        with evaluating(self):
            if beams > 1:
                return beam_search(next_scores, cache, tokens, steps, beams=beams, **options)
            return generate(next_scores, cache, tokens, steps, **options)


def _need_real_ends(key_padding: Tensor) -> None:
    """Raises when a beginning ends in padding, where values can be read without waiting."""
    need_tensor("generate: key_padding", key_padding, "bool", (2,))
    if key_padding.device.type != "cpu":
        return
    ends = key_padding[:, -1:]
    if not bool(ends.all()):
        raise ValueError(
            "generate: key_padding must be True for the last token of every sample, which the new "
            f"ones follow, got False for {int((~ends).sum())} of {len(ends)}; pad on the left"
        )


class Translator(nn.Module):
    """Scores of the next target token, given a source text.

    Args:
        config: sizes of encoder and decoder.
        encoder: mechanisms of the encoder's layers.
        decoder: of the decoder's, all of them causal.
    """

    def __init__(self, config: Config, encoder: Mechanisms, decoder: Mechanisms) -> None:
        super().__init__()
        self.config = config
        self.body = EncoderDecoder(config, encoder, decoder)
        self.head = LanguageModelling(self.body.encoder.tokens)

    def forward(self, tokens: Tensor, target: Tensor, **options: Tensor | None) -> Tensor:
        """`(B, T, vocab)` for target tokens `(B, T)`; options as for `EncoderDecoder`."""
        found: Tensor = self.head(self.body(tokens, target, **options))
        return found

    @torch.no_grad()
    def translate(
        self, tokens: Tensor, steps: int, *, begin: int, key_padding: Tensor | None = None,
        global_tokens: Tensor | None = None, beams: int = 4, **options: Any,
    ) -> Tensor:  # fmt: skip
        """The target's tokens `(B, 1 + steps)`, from `begin` on, or fewer if all samples have ended
        before; masks as for `EncoderDecoder`, the other options as for `LanguageModel.generate`.
        """
        with evaluating(self):
            memory = self.body.encoder(tokens, key_padding=key_padding, global_tokens=global_tokens)
            memory = memory.repeat_interleave(beams, 0)
            padding = None if key_padding is None else key_padding.repeat_interleave(beams, 0)
            decoder, cache = self.body.decoder, self.body.decoder.new_cache()

            def next_scores(new: Tensor, cache: Cache) -> Tensor:
                found = decoder(new, memory=memory, memory_padding=padding, cache=cache)
                return self.head(found[:, -1])

            start = tokens.new_full((len(tokens), 1), begin)
            if beams > 1:
                return beam_search(next_scores, cache, start, steps, beams=beams, **options)
            return generate(next_scores, cache, start, steps, **options)
