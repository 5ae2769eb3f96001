"""The row of attention as a small encoder is trained: padding, dropout, and global tokens, of which
every sample has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....measure import Size
from ....patterns import Full, Global, Window
from ....weights import Bell, variance_of
from ..contenders import Bench, Variant, Work, compared, inputs, ours, ratios
from ..draws import THRESHOLD
from ..records import Result
from .row import Row, size_fields

__all__ = ["training_row"]

DROPOUT = 0.1
# Tokens that a question has at most; most have far fewer.
MOST_TOKENS = 67
SDPA = "PyTorch's attention over all pairs"
PASSES = ("forward", "backward")


def training_row() -> Row:
    """Windows of a paragraph, beside PyTorch's attention over all of it."""
    title = f"as in training: padding, dropout {DROPOUT}, paragraphs"

    def run(bench: Bench) -> Result:
        size = bench.size(batch=64, heads=12, length=192, head_dim=32)
        contenders = _ours(bench, size)
        names = tuple(contenders)
        if bench.peers:
            contenders[SDPA] = [Variant(name="", make=lambda: _sdpa(bench, size))]
        entries = compared(bench, contenders, PASSES)
        figures = [own for name in names for own in ratios(entries, SDPA, {}, PASSES, own=name)]
        return Result(
            row="training",
            title=title,
            size=size_fields(size),
            entries=entries,
            figures=figures,
        )

    return Row(name="training", title=title, run=run)


def _ours(bench: Bench, size: Size) -> dict[str, Sequence[Variant]]:
    tokens = Global(_questions(size, bench.device))
    more: dict[str, Any] = {"dropout": DROPOUT, "key_padding": _padding(size, bench.device)}

    def bell(exempt: Global | None) -> Bell:
        return Bell(_variance(size, bench.device), threshold=THRESHOLD, exempt=exempt)

    return {
        "window 64": ours(bench, size, Window(64, 64), **more),
        "window 64, no dropout": ours(bench, size, Window(64, 64), **more | {"dropout": 0.0}),
        "learned 16": ours(bench, size, Full(), lambda: bell(None), **more),
        "window 16, global tokens": ours(bench, size, Window(16, 16) | tokens, **more),
        "learned 16, global tokens": ours(bench, size, Full(), lambda: bell(tokens), **more),
    }


def _padding(size: Size, device: torch.device) -> Tensor:
    """True for real tokens: examples of similar length, as batches have them."""
    lengths = torch.linspace(0.9 * size.length, size.length, size.batch, device=device).long()
    return torch.arange(size.length, device=device) < lengths[:, None]


def _questions(size: Size, device: torch.device) -> Tensor:
    """The first 8 to 23 tokens of every sample; −1 fills the list up."""
    place = torch.arange(min(MOST_TOKENS, size.length), device=device)
    counts = 8 + torch.arange(size.batch, device=device) % 16
    return torch.where(place < counts[:, None], place, -1)


def _variance(size: Size, device: torch.device) -> Tensor:
    """Of reaches from 4 to 64, 16 on average, another for every head."""
    reach = 16.0 * torch.logspace(-2, 2, size.heads, base=2.0, device=device)
    reach = reach * (16.0 / reach.mean())
    own = reach[None, :, None].expand(size.batch, size.heads, size.length)
    return variance_of(own, THRESHOLD).clone().requires_grad_()


def _sdpa(bench: Bench, size: Size) -> Work:
    q, k, v = inputs(size, bench.device)
    mask = _padding(size, bench.device)[:, None, None].expand(-1, 1, size.length, -1)

    def attend(_: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=DROPOUT)

    return Work(attend=attend, leaves=(q, k, v))
