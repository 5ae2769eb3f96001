"""What a mechanism is: a way for queries to choose what they look at."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

__all__ = ["NO_SETTING", "Mechanism", "Setting"]


class Setting(NamedTuple):
    """What a layer tells its mechanism, besides queries, keys and values.

    Attributes:
        x: the layer's input `(B, N, E)`, from which the queries were projected; for mechanisms with
            projections of their own.
        key_padding: bool `(B, M)`, True for a real token; the others do not exist.
        global_tokens: bool `(B, M)`, True for tokens that see everything and that everything sees.
        dropout: share of the probabilities to drop.
    """

    x: Tensor | None = None
    key_padding: Tensor | None = None
    global_tokens: Tensor | None = None
    dropout: float = 0.0


NO_SETTING = Setting()


class Mechanism(nn.Module):
    """Attention as a module that holds only what its idea needs; projections are the layer's.

    A mechanism is called with q `(B, H, N, D)`, k and v `(B, Hk, M, D)` and a `Setting`, and gives
    `(B, H, N, Dv)`. It never changes its function with the batch before, or with what else is in
    the batch.
    """

    @property
    def causal(self) -> bool:
        """Whether no query looks ahead: only such a mechanism can be a decoder's."""
        raise NotImplementedError

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
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        raise NotImplementedError
