"""Patterns of published models, ready-made."""

from __future__ import annotations

from torch import Tensor

from ..errors import need_int
from .base import Pattern
from .causal import Causal
from .fixed import Fixed
from .global_tokens import Global
from .random_blocks import Random
from .strided import Strided
from .window import BlockWindow, Window

__all__ = ["bigbird", "longformer", "sparse_fixed", "sparse_strided"]


def longformer(
    reach: int = 256, tokens: int | Tensor | None = 1, *, dilation: int = 1, causal: bool = False
) -> Pattern:
    """A window and global tokens (Beltagy et al. 2020, arXiv 2004.05150).

    Args:
        reach: steps each side: half of the paper's window w (512).
        tokens: the global tokens, as `Global` takes them; None for none.
        dilation: tokens a step.
        causal: no query looks ahead.
    """
    pattern: Pattern = Window(reach, 0 if causal else reach, dilation)
    if tokens is not None:
        pattern = pattern | Global(tokens)
    return Causal() & pattern if causal else pattern


def bigbird(
    length: int, *, block: int = 64, window: int = 3, drawn: int = 3, ends: int = 1, seed: int = 0
) -> Pattern:
    """Neighbouring blocks, random blocks, and global blocks at both ends (Zaheer et al. 2020, arXiv
    2007.14062, ITC).

    Random blocks are drawn among those that neither the window nor the global blocks already give.

    Args:
        length: the most positions it will see; the draw is made once for it.
        block: tokens a block.
        window: blocks in the window, an odd number.
        drawn: random blocks for each query block.
        ends: global blocks at each end.
        seed: of the draw.
    """
    need_int("bigbird: length", length, at_least=1)
    need_int("bigbird: window", window, at_least=1)
    need_int("bigbird: drawn", drawn, at_least=0)
    need_int("bigbird: ends", ends, at_least=0)
    if window % 2 == 0:
        raise ValueError(f"bigbird: window must be an odd number of blocks, got {window}")
    side = window // 2
    pattern: Pattern = BlockWindow(block, side, side)
    if ends:
        pattern = pattern | Global(ends * block) | Global(-ends * block)
    if drawn:
        pattern = pattern | Random(drawn, block, seed, length, beyond=side, ends=ends)
    return pattern


def sparse_strided(stride: int = 128) -> Pattern:
    """The last `stride` tokens and every `stride`-th before (Child et al. 2019, arXiv 1904.10509),
    both in one head.
    """
    return Causal() & (Window(stride, 0) | Strided(stride))


def sparse_fixed(stride: int = 128, summary: int = 32) -> Pattern:
    """One's own block and the ends of all earlier ones (Child et al. 2019, arXiv 1904.10509), both
    in one head.
    """
    return Causal() & Fixed(stride, summary)
