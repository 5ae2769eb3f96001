"""Mechanisms by name, so that a file can say which ones a model has."""

from __future__ import annotations

from typing import Any

from .attention import Attention
from .bigbird import BigBird
from .full_attention import FullAttention
from .learned_window import LearnedWindow
from .mechanism import Mechanism
from .sliding_window import SlidingWindow

__all__ = ["described", "mechanism_from"]

KINDS: dict[str, type[Mechanism]] = {
    kind.__name__: kind
    for kind in (Attention, BigBird, FullAttention, LearnedWindow, SlidingWindow)
}


def described(mechanism: Mechanism) -> dict[str, Any]:
    """A mechanism's name and settings, as JSON can hold them."""
    name = type(mechanism).__name__
    if KINDS.get(name) is not type(mechanism):
        raise ValueError(
            f"{name} is not one of {', '.join(sorted(KINDS))}: a model with a mechanism of its own "
            "is saved by its state dict"
        )
    return {"kind": name, **mechanism.settings}


def mechanism_from(description: dict[str, Any]) -> Mechanism:
    """A mechanism as it was described; its tensors come with a state dict."""
    settings = dict(description)
    name = settings.pop("kind", None)
    if name not in KINDS:
        raise ValueError(f"no mechanism is called {name!r}; there are {', '.join(sorted(KINDS))}")
    if name == "Attention":
        return Attention.from_settings(settings)
    return KINDS[name](**settings)
