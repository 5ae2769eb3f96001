"""A small encoder that reads whole articles, as recipes train it: with learned windows, with full
attention, and with none.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...measure import Size
from ...models import Config, Encoder
from ...nn import FullAttention, LearnedWindow, Mechanism
from ..contenders import Contender, Work
from ..problem import Problem
from .encoders import CEILING, OURS, THEIRS, NoAttention, beside_full

__all__ = ["reader"]

REACH, MOST = 40, 320
# Of a question, with its marks.
QUESTION = 18


def reader(
    length: int,
    target: float,
    *,
    layers: int = 6,
    tokens: int = 65536,
    quick: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    compiler: str | None = None,
) -> Problem:
    """An encoder of the size of all-MiniLM-L6-v2, random weights: forward and backward.

    Args:
        length: tokens of a text, the first of which are a question's and global.
        target: how many times faster than with SDPA it is to be.
        layers: of the encoder.
        tokens: of all texts at once.
        quick: a small one.
        device: where it runs.
        dtype: of weights and activations.
        compiler: a backend of `torch.compile`, which each layer goes through; None for none.
    """
    size = Size(batch=tokens // length, heads=12, length=length, head_dim=32, dtype=dtype)
    if quick:
        size, layers = Size(batch=2, heads=2, length=128, head_dim=16, dtype=dtype), 2
    width = size.heads * size.head_dim

    def contender(name: str, mechanism: Callable[[], Mechanism]) -> Contender:
        def make(size: Size) -> Work:
            return _work(size, layers, mechanism, device, compiler)

        return Contender(name=name, size=size, make=make, forward=False)

    return beside_full(
        f"reader-{length}",
        f"a reader, {layers} layers, {size.batch} texts of {size.length:,} tokens",
        REACH,
        target,
        contender(OURS, lambda: _learned(width, size.heads)),
        contender(THEIRS, FullAttention),
        contender(CEILING, NoAttention),
    )


def _learned(width: int, heads: int) -> LearnedWindow:
    """Reaches are spread as trained ones are."""
    made = LearnedWindow(width, heads, mean_reach=REACH, max_reach=MOST, most_global=QUESTION)
    with torch.no_grad():
        made.U_d.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
    return made


def _work(
    size: Size,
    layers: int,
    mechanism: Callable[[], Mechanism],
    device: str,
    compiler: str | None,
) -> Work:
    sizes = Config(
        vocab=128, width=size.heads * size.head_dim, layers=layers, heads=size.heads,
        length=size.length, norm="post", embedding_norm=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Encoder(sizes, lambda layer: mechanism()).train().to(device, size.dtype)
    if compiler is not None:
        # Layer by layer: all of them share what was compiled for the first.
        for block in model.blocks:
            block.compile(backend=compiler, dynamic=False)
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(128, (size.batch, size.length), generator=source).to(device)
    marked = (torch.arange(size.length, device=device) < QUESTION).expand(size.batch, -1)

    def forward() -> Tensor:
        found: Tensor = model(ids, global_tokens=marked)
        return found

    return Work(forward=forward, leaves=tuple(model.parameters()), graph=device == "cuda")
