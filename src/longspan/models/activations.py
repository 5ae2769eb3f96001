"""Activations by the names that a config gives them."""

from __future__ import annotations

from torch import nn

from ..errors import describe

__all__ = ["ACTIVATIONS", "activation_of"]

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "tanh")


def activation_of(name: str) -> nn.Module:
    """The module that computes it; it has no weights."""
    if name not in ACTIVATIONS:
        raise ValueError(
            f"activation must be one of {', '.join(ACTIVATIONS)}, got {describe(name)}"
        )
    if name == "relu":
        return nn.ReLU()
    if name == "tanh":
        return nn.Tanh()
    return nn.GELU("tanh" if name == "gelu_tanh" else "none")
