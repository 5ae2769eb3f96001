"""The projections of a layer of transformers, for mechanisms that start from copies of them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn import LearnedWindow, Mechanism
from ..nn.global_rows import GlobalRows

__all__ = [
    "knows_queries",
    "plain_queries",
    "refuse_norms",
    "start_projections",
    "wants_plain_queries",
]

# What models call the projections of queries, keys and values; or all three in one, in that order.
APART = (
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_lin", "k_lin", "v_lin"),
    ("q", "k", "v"),
)
TOGETHER = ("Wqkv", "qkv")

# What is called where queries are turned by their positions.
TURNING = ("rotary", "rotate_queries")

# What models call a norm of queries, keys or values after they are projected: q_norm, qk_norm,
# query_layernorm, k_layer_norm, q_ln.
NORM = re.compile(r"(q|k|v|qk|query|key|value)_(layer_?)?(norm|ln)")


def refuse_norms(mechanism: Mechanism, layer: nn.Module, where: str) -> None:
    """Raises where copies of a layer's projections would miss what follows these in the layer."""
    if not isinstance(mechanism, GlobalRows) or not mechanism.fresh:
        return
    for name, part in layer.named_children():
        if NORM.fullmatch(name) and not isinstance(part, nn.Identity):
            raise ValueError(
                f"use: {where} normalises its queries, keys or values after projecting ({name}), "
                f"which global rows of {type(mechanism).__name__} with projections of their own "
                "would miss: make it with global_projections=False"
            )


def start_projections(mechanism: Mechanism, layer: nn.Module) -> bool:
    """Makes the projections of a mechanism copies of the layer's, unless they were set before.

    A layer that turns its queries and keys by their positions does so after projecting: rows of
    global tokens have no positions there.

    Returns:
        False where the mechanism has some, and the layer's are not known here.
    """
    if not isinstance(mechanism, GlobalRows) or not mechanism.fresh:
        return True
    weights = _weights(layer)
    if weights is None:
        return False
    mechanism.copy_projections(*(_linear(weight, bias) for weight, bias in weights))
    return True


def _weights(layer: nn.Module) -> list[tuple[Tensor, Tensor | None]] | None:
    """Weight and bias of the three."""
    found: Any = layer
    for names in APART:
        if all(hasattr(layer, name) for name in names):
            return [(getattr(found, name).weight, getattr(found, name).bias) for name in names]
    for name in TOGETHER:
        if hasattr(layer, name):
            whole = getattr(found, name)
            biases = (None,) * 3 if whole.bias is None else whole.bias.chunk(3)
            return list(zip(whole.weight.chunk(3), biases, strict=True))
    return None


def wants_plain_queries(mechanism: Mechanism, layer: nn.Module) -> bool:
    """Whether a mechanism reads queries that the layer turns by their positions: a reach would
    depend on the place.
    """
    if not isinstance(mechanism, LearnedWindow) or mechanism.reads != "query":
        return False
    forward: Any = inspect.unwrap(type(layer).forward)
    if "position_embeddings" in inspect.signature(forward).parameters:
        return True
    # Some make the angles themselves, or turn by a function of their own.
    named = getattr(getattr(forward, "__code__", None), "co_names", ())
    return any(word in name for name in named for word in TURNING)


def knows_queries(layer: nn.Module, width: int) -> bool:
    """Whether `plain_queries` can give queries of so many channels."""
    projection = _query_projection(layer)
    if projection is not None:
        return getattr(projection, "out_features", None) == width
    weights = _weights(layer)
    return weights is not None and weights[0][0].shape[0] == width


def plain_queries(layer: nn.Module, x: Tensor, heads: int) -> Tensor:
    """A layer's queries `(B, heads, N, size)` from its input, not turned, where they are known."""
    projection = _query_projection(layer)
    if projection is not None:
        # Called, not read: PEFT may have put something around it.
        found = projection(x)
    else:
        weights = _weights(layer)
        assert weights is not None
        found = F.linear(x, *weights[0])
    return found.unflatten(-1, (heads, -1)).transpose(1, 2)


def _query_projection(layer: nn.Module) -> Any:
    names = next((own for own in APART if all(hasattr(layer, name) for name in own)), None)
    return None if names is None else getattr(layer, names[0])


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        dtype=weight.dtype,
        device=weight.device,
    )
    with torch.no_grad():
        made.weight.copy_(weight)
        if bias is not None:
            made.bias.copy_(bias)
    return made
