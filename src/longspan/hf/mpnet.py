"""MPNet, whose attention does not go through transformers' interface.

It has a bias by distance, one for all layers, which its encoder makes as a tensor of all pairs.
Both are replaced on the model's own modules: the encoder gives its layers a `DistanceBias`, a small
table that is the same thing, and the layers attend by longspan with it. Where they get a tensor
instead, because the model was turned to another implementation, they compute as they did.

Global tokens, which the model and the heads around it would keep to themselves, go to the layers
with the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..weights import DistanceBias
from .attention import attend
from .global_tokens import HANDED
from .names import NAME

__all__ = ["attach", "detach", "is_attached", "is_attention"]

ATTENTION, ENCODER, MODEL = "MPNetSelfAttention", "MPNetEncoder", "MPNetModel"

# Under this name an encoder has the global tokens of the call that is under way.
UNDER_WAY = "_longspan_under_way"

# From this distance on, all share one bucket.
FAR = 128


def is_attention(module: nn.Module) -> bool:
    """Whether this is MPNet's self-attention."""
    return _is(module, ATTENTION)


def is_attached(model: nn.Module) -> bool:
    """Whether the model has modules that were replaced."""
    return any(name in part.__dict__ for part, name, _ in _replaced(model))


def attach(model: nn.Module) -> None:
    """Lets an MPNet attend by longspan, while its config says that it does."""
    for part, name, method in _replaced(model):
        # Not a method: one that the class does not have cannot be unpickled.
        made: Any = partial(method, part)
        # A Trainer leaves out the columns that are not among the names of a model's arguments.
        made.__signature__ = inspect.signature(partial(getattr(type(part), name), part))
        part.__dict__[name] = made


def detach(model: nn.Module) -> None:
    """Undoes `attach`."""
    for part, name, _ in _replaced(model):
        part.__dict__.pop(name, None)


def _replaced(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    for part in model.modules():
        if _is(part, ATTENTION):
            yield part, "forward", _forward
        elif _is(part, ENCODER):
            yield part, "compute_position_bias", _position_bias
        elif _is(part, MODEL):
            yield part, "forward", _model_forward
        elif _is(getattr(part, "mpnet", None), MODEL):
            yield part, "forward", _head_forward


def _is(module: nn.Module | None, name: str) -> bool:
    return any(kind.__name__ == name for kind in type(module).__mro__)


class Handed(NamedTuple):
    """What the encoder hands to its layers in the place of its bias.

    Attributes:
        bias: `(H, 2 · FAR + 1)`, with a gradient to its embedding.
        global_tokens: those of the call.
    """

    bias: DistanceBias
    global_tokens: Tensor | None


def _head_forward(self: Any, *args: Any, global_tokens: Tensor | None = None, **named: Any) -> Any:
    """A head around the model, which calls it without what it does not know."""
    setattr(self.mpnet, HANDED, global_tokens)
    try:
        return type(self).forward(self, *args, **named)
    finally:
        delattr(self.mpnet, HANDED)


def _model_forward(self: Any, *args: Any, global_tokens: Tensor | None = None, **named: Any) -> Any:
    """The model, which takes global tokens too."""
    handed = getattr(self, HANDED, None)
    setattr(self.encoder, UNDER_WAY, global_tokens if handed is None else handed)
    try:
        return type(self).forward(self, *args, **named)
    finally:
        delattr(self.encoder, UNDER_WAY)


def _position_bias(self: Any, x: Tensor, *others: Any, **named: Any) -> Handed | Tensor:
    """The encoder's bias by distance."""
    if self.config._attn_implementation != NAME:
        bias: Tensor = type(self).compute_position_bias(self, x, *others, **named)
        return bias
    offsets = torch.arange(-FAR, FAR + 1, device=x.device)
    table = self.relative_attention_bias(self.relative_position_bucket(offsets)).T
    return Handed(DistanceBias(table), getattr(self, UNDER_WAY, None))


def _forward(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Any = None,
    position_bias: Handed | Tensor | None = None,
    output_attentions: bool = False,
    **others: Any,
) -> tuple[Tensor, ...]:
    """A layer's attention, with its own projections and dropout."""
    if not isinstance(position_bias, Handed):
        found: tuple[Tensor, ...] = type(self).forward(
            self, hidden_states, attention_mask, position_bias, output_attentions, **others
        )
        return found
    shape = (*hidden_states.shape[:-1], -1, self.attention_head_size)
    q, k, v = (own(hidden_states).view(shape).transpose(1, 2) for own in (self.q, self.k, self.v))
    y, _ = attend(
        self,
        q,
        k,
        v,
        attention_mask,
        dropout=self.dropout.p if self.training else 0.0,
        is_causal=False,
        global_tokens=position_bias.global_tokens,
        layer_input=hidden_states,
        weights=(position_bias.bias,),
        output_attentions=output_attentions,
    )
    return (self.o(y.flatten(2)),)
