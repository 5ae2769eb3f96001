"""The peers on a GPU, each as fast as its users can have it: FlexAttention and FlashAttention-2."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...measure import Size
from ...patterns import Pattern
from ...weights.conversions import SLACK
from .contenders import Bench, Variant, Work, inputs
from .draws import THRESHOLD
from .masks import bell_score, mask_of, reach_mask

__all__ = ["FLASH", "FLEX", "flash_window", "flex_learned", "flex_pattern"]

FLEX = "FlexAttention"
FLASH = "FlashAttention-2"

# Its own default, and half of that, which skips more of a narrow window. The tiles of its kernels
# have to fit a block, and those of its backward do so for few head sizes.
BLOCKS: dict[int, dict[str, int]] = {128: {}, 64: {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64}}

# Every mask, length and head size is compiled anew, and beyond torch's limit nothing is compiled.
MOST_COMPILED = 512


def flex_pattern(bench: Bench, size: Size, pattern: Pattern) -> list[Variant]:
    """FlexAttention over the pairs of a pattern; its block mask is made once and used again."""

    def make(block: int) -> Callable[[], Work]:
        def made() -> Work:
            attend, build = _flex(bench.compiled)
            q, k, v = inputs(size, bench.device)
            allowed = mask_of(pattern, size.length, bench.device)
            n = size.length
            return Work(
                attend=lambda mask: attend(
                    q, k, v, block_mask=mask, kernel_options=BLOCKS[block] or None
                ),
                leaves=(q, k, v),
                mask=lambda: build(
                    allowed, None, None, n, n, device=str(bench.device), BLOCK_SIZE=block
                ),
            )

        return made

    return [Variant(name=f"blocks of {block}", make=make(block)) for block in BLOCKS]


def flex_learned(bench: Bench, size: Size, variance: Callable[[], Tensor]) -> list[Variant]:
    """FlexAttention with a bell and the reach of its variance, which learns: the block mask is made
    anew from the current reaches in every step.
    """

    def make(block: int) -> Callable[[], Work]:
        def made() -> Work:
            attend, build = _flex(bench.compiled)
            reach_of = torch.compile(_reach_of, dynamic=False) if bench.compiled else _reach_of
            q, k, v = inputs(size, bench.device)
            learned = variance()
            score = bell_score(learned)
            b, h, n = learned.shape

            def mask() -> Any:
                allowed = reach_mask(reach_of(learned))
                return build(allowed, b, h, n, n, device=str(bench.device), BLOCK_SIZE=block)

            return Work(
                attend=lambda mask: attend(
                    q,
                    k,
                    v,
                    score_mod=score,
                    block_mask=mask,
                    kernel_options=BLOCKS[block] or None,
                ),
                leaves=(q, k, v, learned),
                mask=mask,
                remade=True,
            )

        return made

    return [Variant(name=f"blocks of {block}", make=make(block)) for block in BLOCKS]


def _reach_of(variance: Tensor) -> Tensor:
    """`weights.reach_of` in float32, which compiles to a single kernel."""
    wide = (variance.detach() * (-2 * math.log(THRESHOLD))).sqrt()
    return (wide + SLACK).floor().to(torch.int32)


def _flex(compiled: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`flex_attention` and `create_block_mask`, compiled."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    if not compiled:
        return flex.flex_attention, flex.create_block_mask
    dynamo: Any = importlib.import_module("torch._dynamo.config")
    for name in ("recompile_limit", "accumulated_recompile_limit"):
        if hasattr(dynamo, name):
            setattr(dynamo, name, max(getattr(dynamo, name), MOST_COMPILED))
    # A backward that is timed runs more than once, so it must not give its buffers away.
    functorch: Any = importlib.import_module("torch._functorch.config")
    functorch.donated_buffer = False
    return (
        torch.compile(flex.flex_attention, dynamic=False),
        torch.compile(flex.create_block_mask, dynamic=False),
    )


def flash_window(bench: Bench, size: Size, reach: int) -> list[Variant]:
    """FlashAttention-2 with a window, as PyTorch ships it, in its own order of dimensions."""

    def make() -> Work:
        q, k, v = (
            x.detach().transpose(1, 2).contiguous().requires_grad_()
            for x in inputs(size, bench.device)
        )
        n = size.length

        def attend(_: Any) -> Tensor:
            found: Tensor = torch.ops.aten._flash_attention_forward(
                q,
                k,
                v,
                None,
                None,
                n,
                n,
                0.0,
                False,
                False,
                window_size_left=reach,
                window_size_right=reach,
            )[0]
            return found

        return Work(attend=attend, leaves=(q, k, v))

    return [Variant(name="", make=make)]
