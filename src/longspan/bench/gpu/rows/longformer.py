"""Rows of Longformer's layer as Hugging Face has it, and what is left of it without projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....functional import attention
from ....measure import Size
from ....patterns import longformer
from ...contenders import Unavailable, installed
from ..contenders import Bench, Variant, Work, compared, inputs
from ..floor import needs_of
from ..records import Entry, Figure, Result
from .row import Row, size_fields
from .windows import REACH

__all__ = ["longformer_row"]

HEADS = 12

THEIR_LAYER = "Hugging Face layer"
OUR_LAYER = "longspan layer"
PROJECTIONS = "projections"
OUR_PART = "longspan attention"
TARGETS = {"part": 15.0, "layer": 8.0}


def longformer_row(name: str, *, tokens: int) -> Row:
    """Random weights, one sample.

    Args:
        name: of the row.
        tokens: global ones, the first of the text. Hugging Face then asks the GPU where they are,
            so that its layer cannot be captured, and is timed eagerly.
    """
    title = f"Longformer's layer, window of {REACH} each side, global tokens: {tokens}"

    def run(bench: Bench) -> Result:
        size = bench.size(batch=1, heads=HEADS)
        try:
            contenders = _contenders(bench, size, tokens)
        except Unavailable as error:
            return Result(row=name, title=title, missing=str(error))
        entries = compared(bench, contenders)
        dense = longformer(REACH, tokens or None).dense(size.length)
        pairs = size.batch * size.heads * int(dense.sum())
        return Result(
            row=name,
            title=title,
            size=size_fields(size),
            pairs=pairs,
            needs=needs_of(size, pairs, bench.card),
            entries=entries,
            figures=_figures({entry.name: entry for entry in entries}, tokens),
        )

    return Row(name=name, title=title, run=run)


def _contenders(bench: Bench, size: Size, tokens: int) -> dict[str, Sequence[Variant]]:
    makers: dict[str, Callable[[], Work]] = {
        OUR_LAYER: lambda: _our_layer(bench, size, tokens),
        PROJECTIONS: lambda: _projections(bench, size),
        OUR_PART: lambda: _our_part(bench, size, tokens),
    }
    if bench.peers:
        for module in ("transformers", "transformers.models.longformer.modeling_longformer"):
            installed(module)
        makers[THEIR_LAYER] = lambda: _their_layer(bench, size, tokens)
    return {name: [Variant(name="", make=make)] for name, make in makers.items()}


def _hidden(bench: Bench, size: Size) -> Tensor:
    source = torch.Generator(bench.device).manual_seed(1)
    shape = (size.batch, size.length, size.heads * size.head_dim)
    drawn = torch.randn(shape, generator=source, device=bench.device)
    return drawn.to(size.dtype).requires_grad_()


def _linears(bench: Bench, size: Size) -> nn.ModuleList:
    wide = size.heads * size.head_dim
    return nn.ModuleList(nn.Linear(wide, wide) for _ in range(3)).to(bench.device, size.dtype)


def _their_layer(bench: Bench, size: Size, tokens: int) -> Work:
    modeling = installed("transformers.models.longformer.modeling_longformer")
    config = installed("transformers").LongformerConfig(
        hidden_size=size.heads * size.head_dim,
        num_attention_heads=size.heads,
        attention_window=[2 * REACH],
        attention_probs_dropout_prob=0.0,
    )
    module = modeling.LongformerSelfAttention(config, layer_id=0).to(bench.device, size.dtype)
    module.eval()
    hidden = _hidden(bench, size)
    is_global = torch.zeros(size.batch, size.length, dtype=torch.bool, device=bench.device)
    is_global[:, :tokens] = True
    mask = is_global.to(size.dtype) * 10000
    masked = torch.zeros_like(is_global)
    used = [p for n, p in module.named_parameters() if tokens or "global" not in n]

    def attend(_: Any) -> Tensor:
        found: Tensor = module(
            hidden,
            attention_mask=mask,
            is_index_masked=masked,
            is_index_global_attn=is_global,
            is_global_attn=tokens > 0,
        )[0]
        return found

    return Work(attend=attend, leaves=(hidden, *used))


def _our_layer(bench: Bench, size: Size, tokens: int) -> Work:
    """The same projections for all tokens: global ones have none of their own here."""
    linears, hidden = _linears(bench, size), _hidden(bench, size)
    pattern = longformer(REACH, tokens or None)
    shape = (size.batch, size.length, size.heads, size.head_dim)
    backend: Any = bench.backend

    def attend(_: Any) -> Tensor:
        q, k, v = (linear(hidden).view(shape).transpose(1, 2) for linear in linears)
        out = attention(q, k, v, pattern, backend=backend)
        return out.transpose(1, 2).reshape(size.batch, size.length, -1)

    return Work(attend=attend, leaves=(hidden, *linears.parameters()))


def _projections(bench: Bench, size: Size) -> Work:
    linears, hidden = _linears(bench, size), _hidden(bench, size)
    return Work(
        attend=lambda _: [linear(hidden) for linear in linears],
        leaves=(hidden, *linears.parameters()),
    )


def _our_part(bench: Bench, size: Size, tokens: int) -> Work:
    """Attention alone, on queries, keys and values in the layout that projections leave."""
    q, k, v = (
        x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        for x in inputs(size, bench.device)
    )
    pattern = longformer(REACH, tokens or None)
    backend: Any = bench.backend
    return Work(attend=lambda _: attention(q, k, v, pattern, backend=backend), leaves=(q, k, v))


def _figures(entries: dict[str, Entry], tokens: int) -> list[Figure]:
    theirs = entries.get(THEIR_LAYER)
    if theirs is None:
        return []
    found = []
    for which in ("forward", "backward"):
        layer, projections = (entries[n].passes.get(which) for n in (THEIR_LAYER, PROJECTIONS))
        whole = None if layer is None else layer.median
        part = None if whole is None or projections is None else whole - projections.median
        for what, above, below in (("part", part, OUR_PART), ("layer", whole, OUR_LAYER)):
            mine = entries[below].passes.get(which)
            known = above is not None and mine is not None
            found.append(
                Figure(
                    what=f"{which}, {what} faster than Hugging Face's",
                    unit="×",
                    value=above / mine.median if above is not None and mine is not None else None,
                    target=TARGETS[what],
                    note=_note(what, tokens) if known else theirs.missing or "not measured",
                )
            )
    return found


def _note(what: str, tokens: int) -> str:
    notes = ["theirs: the layer less its projections"] if what == "part" else []
    if tokens:
        notes.append("their global tokens have projections of their own, and it waits: eager")
    return "; ".join(notes)
