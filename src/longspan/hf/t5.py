"""T5 and its like, which add a bias by distance to their scores.

It comes with the call of a layer's attention, as a tensor of all pairs that the first layer has
made for all of them. In the encoder of a model that `use` was given, a small table comes in its
place, of which the layer makes a `DistanceBias`, the same thing. It travels as a tensor, for
gradient checkpointing follows nothing else from layer to layer. A decoder's bias is of the few
tokens that it writes, and stays as it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from ..weights import Bias, DistanceBias, Weight
from .names import NAME

__all__ = ["attach", "bias_of", "detach", "is_attached", "is_attention"]

ATTENTION = ("T5Attention", "MT5Attention", "UMT5Attention")
METHOD = "compute_bias"


def is_attention(module: nn.Module) -> bool:
    """Whether this is an attention of T5's."""
    return any(kind.__name__ in ATTENTION for kind in type(module).__mro__)


def bias_of(position_bias: Tensor) -> Weight:
    """What the model adds to its scores: numbers for all pairs `(1, H, N, M)`, or a table by
    distance `(H, 2 · far + 1)`.
    """
    return DistanceBias(position_bias) if position_bias.dim() == 2 else Bias(position_bias)


def is_attached(model: nn.Module) -> bool:
    """Whether the model has modules whose method was replaced."""
    return any(METHOD in part.__dict__ for part in _replaced(model))


def attach(model: nn.Module) -> None:
    """Lets encoders hand tables to their layers, while their config says that these take them."""
    for part in _replaced(model):
        # Not a method: one that the class does not have cannot be unpickled.
        part.__dict__[METHOD] = partial(_table, part)


def detach(model: nn.Module) -> None:
    """Undoes `attach`."""
    for part in _replaced(model):
        part.__dict__.pop(METHOD, None)


def _replaced(model: nn.Module) -> list[nn.Module]:
    return [
        part
        for part in model.modules()
        if is_attention(part) and not getattr(part, "is_decoder", False)
    ]


def _table(self: Any, *sizes: Any, **named: Any) -> Tensor:
    """The layer's bias by distance; from `far` on, all distances share a bucket."""
    found: Tensor
    if self.config._attn_implementation != NAME:
        found = type(self).compute_bias(self, *sizes, **named)
        return found
    far = self.relative_attention_max_distance
    # Of one query in the middle of its keys: (1, H, 1, 2 · far + 1).
    found = type(self).compute_bias(
        self, 1, 2 * far + 1, device=named.get("device"), past_seen_tokens=far
    )
    return found[0, :, 0]
