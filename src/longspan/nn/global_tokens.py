"""Global tokens by their positions, where it is known how many a sample has at most.

A mask does not say how many tokens are global before it is read, and a GPU would have to be waited
for. Positions do, by their shape: layouts and kernels then take so many tokens and no more.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..remembering import Remembered

__all__ = ["FewTokens", "KnownTokens", "few_tokens"]


class FewTokens(NamedTuple):
    """The first global tokens of every sample, in order.

    Attributes:
        places: where they are, int64 `(B, most)`; a sample with fewer has others after them, no
            token twice.
        there: which of the places are global, bool `(B, most)`.
        positions: the same places for `Global`, with −1, which names no token, for the others.
        beyond: global tokens that are too many, bool `(B, M)`.
    """

    places: Tensor
    there: Tensor
    positions: Tensor
    beyond: Tensor

    def marked(self, y: Tensor) -> Tensor:
        """`y` `(B, H, N, D)` with NaN in the rows of tokens that are too many."""
        n, m = y.shape[2], self.beyond.shape[1]
        rows = self.beyond[:, m - n :] if n <= m else F.pad(self.beyond, (n - m, 0))
        return y.masked_fill(rows[:, None, :, None], torch.nan)


class KnownTokens(NamedTuple):
    """What `few_tokens` has found once for all layers of a model, and for which masks: a layer that
    is told of others asks anew.
    """

    tokens: Tensor
    key_padding: Tensor | None
    most_global: int
    few: FewTokens

    @classmethod
    def of(
        cls, owner: str, tokens: Tensor, key_padding: Tensor | None, most_global: int
    ) -> KnownTokens:
        few = few_tokens(owner, tokens, key_padding, most_global)
        return cls(tokens, key_padding, most_global, few)

    def are_of(self, tokens: Tensor, key_padding: Tensor | None, most_global: int) -> bool:
        return (
            tokens is self.tokens
            and key_padding is self.key_padding
            and most_global == self.most_global
        )


_FOUND: Remembered[FewTokens] = Remembered()


def few_tokens(
    owner: str, tokens: Tensor, key_padding: Tensor | None, most_global: int
) -> FewTokens:
    """At most so many global tokens for each sample; the same object for the same tensors.

    Args:
        owner: the mechanism, for errors.
        tokens: bool `(B, M)`, True for a global token.
        key_padding: bool `(B, M)`, True for a real token; others are not counted.
        most_global: no sample has more. More of them raise on a CPU; where nobody may read them,
            `FewTokens.marked` tells.
    """
    given = (tokens,) if key_padding is None else (tokens, key_padding)
    # A mask is wanted by every layer.
    return _FOUND.found(partial(_few, owner, most_global), given, (owner, most_global))


def _few(owner: str, most_global: int, given: list[Tensor]) -> FewTokens:
    tokens = given[0] if len(given) == 1 else given[0] & given[1]
    largest = _largest(tokens)
    if largest > most_global:
        raise ValueError(
            f"{owner}: most_global is {most_global}, but a sample has {largest} global tokens; "
            "make it with more"
        )
    most = min(most_global, tokens.shape[1])
    first = (~tokens).to(torch.int8).argsort(dim=-1, stable=True)[:, :most]
    there = tokens.gather(1, first)
    beyond = tokens & (tokens.cumsum(-1) > most)
    return FewTokens(first, there, torch.where(there, first, -1), beyond)


def _largest(tokens: Tensor) -> int:
    """How many global tokens a sample has at most; 0 where nobody may read that."""
    if tokens.device.type != "cpu" or torch.compiler.is_compiling() or tokens.numel() == 0:
        return 0
    return int(tokens.sum(-1).max())
