"""The row of what a learned window computes before it attends: shares, their budget, variances."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ....functional.window import left_to_torch
from ....measure import Size
from ....nn import LearnedWindow, Setting
from ..contenders import Bench, Variant, Work, compared, inputs, ratios
from ..records import Entry, Figure, Result
from .row import Row, size_fields

__all__ = ["reaches_row"]

# Paragraphs in training, an article, articles with larger heads: batch, heads, length, channels.
SIZES = ((64, 12, 384, 32), (1, 12, 16384, 32), (4, 16, 4096, 64))
KERNELS, TORCH = "by kernels", "by PyTorch's operations"
PASSES = ("forward", "backward")


def reaches_row() -> Row:
    """Variances from queries, by kernels of their own and by PyTorch's operations."""
    title = "what a learned window computes before it attends"

    def run(bench: Bench) -> Result:
        entries: list[Entry] = []
        figures: list[Figure] = []
        sizes = [
            bench.size(batch=batch, heads=heads, length=length, head_dim=channels)
            for batch, heads, length, channels in SIZES
        ]
        for size in sizes:
            said = f"B={size.batch} H={size.heads} N={size.length:,} D={size.head_dim}"
            ways = (KERNELS, TORCH) if bench.peers else (KERNELS,)
            found = compared(bench, {f"{said}, {way}": _variant(bench, size, way) for way in ways})
            entries += found
            peer = f"{said}, {TORCH}"
            figures += ratios(found, peer, {}, PASSES, own=f"{said}, {KERNELS}")
        return Result(
            row="reaches", title=title, size=size_fields(sizes[0]), entries=entries, figures=figures
        )

    return Row(name="reaches", title=title, run=run)


def _variant(bench: Bench, size: Size, way: str) -> list[Variant]:
    def make() -> Work:
        q, _, _ = inputs(size, bench.device)
        source = torch.Generator().manual_seed(0)
        window = LearnedWindow(size.heads * size.head_dim, size.heads)
        with torch.no_grad():
            for own, width in ((window.W_p, 0.5), (window.U_d, 1.0)):
                own.copy_(torch.randn(own.shape, generator=source) * width * size.head_dim**-0.5)
        window.to(bench.device)

        def attend(_: Any) -> Tensor:
            with left_to_torch() if way == TORCH else nullcontext():
                (bell,) = window.asks(q, size.length, Setting()).weight
            variance: Tensor = vars(bell)["variance"]
            return variance

        return Work(attend=attend, leaves=(q, *window.network.values()))

    return [Variant(name="", make=make)]
