"""More positions for models whose positions are a learned table."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import need_int

__all__ = ["lengthen"]

M = TypeVar("M", bound=nn.Module)

# What models call the table, and what they keep beside it with an entry for every position.
TABLES = ("position_embeddings", "wpe", "embed_positions")
BESIDE = ("position_ids", "token_type_ids")


def lengthen(model: M, positions: int) -> M:
    """Gives a model of transformers more positions, by copying those that it has learned, in place.

        new[i] = old[i mod L]      for i < positions, with L the positions that it had

    so that tokens near each other have the positions that they had in the shorter model, but for
    the seams. Rows that are no positions (RoBERTa's first two) stay. `max_position_embeddings` of
    the config follows, so that the model is saved and loaded as any other. A tokenizer has a limit
    of its own, `model_max_length`.

    Args:
        model: one with a learned table of positions: BERT, RoBERTa, DistilBERT, MPNet, GPT-2; of
            BART, those of the encoder and of the decoder, whose number is one in its config.
            Call it before an optimiser is made, for the table is a new parameter.
        positions: how many tokens a text may have.

    Returns:
        The model.

    Reference:
        Beltagy, Peters, Cohan 2020, "Longformer: The Long-Document Transformer" (arXiv 2004.05150),
        section 5, which starts from RoBERTa in this way.
    """
    need_int("lengthen: positions", positions, at_least=1)
    config: Any = getattr(model, "config", None)
    size = getattr(config, "max_position_embeddings", None)
    found = [
        (owner, name, table)
        for owner in model.modules()
        for name, table in owner.named_children()
        if name in TABLES
        and isinstance(table, nn.Embedding)
        and table.num_embeddings - _uncounted(table) == size
        and "Sinusoidal" not in type(table).__name__
    ]
    if not found:
        raise ValueError(
            f"lengthen: {type(model).__name__} has no learned table of positions that is "
            "known here. Rotary positions are lengthened by rope_parameters of the config; biases "
            "by distance (T5, ALiBi) and computed positions have no end"
        )
    for owner, _, table in found:
        uncounted = _uncounted(table)
        first = uncounted if table.padding_idx is None else table.padding_idx + 1
        had = table.num_embeddings - first
        if positions < had:
            raise ValueError(
                f"lengthen: {type(model).__name__} has {had} positions already, got {positions}"
            )
        rows = torch.arange(positions, device=table.weight.device) % had + first
        with torch.no_grad():
            longer = torch.cat([table.weight[:first], table.weight[rows]])
        table.weight = nn.Parameter(longer, requires_grad=table.weight.requires_grad)
        table.num_embeddings = first + positions
        for name in BESIDE:
            beside = getattr(owner, name, None)
            if isinstance(beside, Tensor) and beside.shape[-1] == size:
                _extend(owner, name, beside, first + positions)
        config.max_position_embeddings = first + positions - uncounted
    return model


def _uncounted(table: nn.Embedding) -> int:
    """Rows before the first position that are not among `max_position_embeddings` (BART)."""
    return int(getattr(table, "offset", 0))


def _extend(owner: nn.Module, name: str, beside: Tensor, size: int) -> None:
    """Positions count on; types of tokens are all of one."""
    shape = (*beside.shape[:-1], size)
    if name == "position_ids":
        longer = torch.arange(size, dtype=beside.dtype, device=beside.device).expand(shape)
    else:
        longer = beside[..., :1].expand(shape).contiguous()
    owner.register_buffer(name, longer, persistent=name not in owner._non_persistent_buffers_set)
