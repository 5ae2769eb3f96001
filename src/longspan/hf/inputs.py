"""Texts as somebody has them, and as a model of transformers takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import describe

__all__ = ["inputs_of"]


def inputs_of(
    owner: str, text: Any, tokenizer: Callable[..., Any] | None, device: torch.device
) -> dict[str, Tensor]:
    """The arguments of a call from what a tokenizer gives, token ids, or a string.

    Args:
        owner: whose argument it is, for messages.
        tokenizer: for strings.
    """
    if isinstance(text, str):
        if tokenizer is None:
            raise ValueError(f"{owner} that are strings need tokenizer=…")
        text = tokenizer(text, return_tensors="pt")
    inputs = {"input_ids": text} if isinstance(text, Tensor) else dict(text)
    ids = inputs.get("input_ids")
    if not isinstance(ids, Tensor) or ids.dim() != 2:
        raise TypeError(
            f"{owner} must have input_ids, a tensor (batch, tokens), got {describe(ids)}; ask a "
            "tokenizer for return_tensors='pt'"
        )
    return {name: value.to(device) for name, value in inputs.items()}
