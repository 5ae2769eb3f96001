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

__all__ = [
    "FLASH",
    "FLEX",
    "FLEX_SMALL",
    "flash_window",
    "flex_learned",
    "flex_pattern",
    "flex_small_blocks",
]

FLEX = "FlexAttention"
FLEX_SMALL = "FlexAttention, blocks of 64 (forward only)"
FLASH = "FlashAttention-2"

# Its own default, with which both passes run; and half of that, which skips more of a narrow
# window. The tiles of its kernels have to fit a block, and those of its backward do not.
DEFAULT, SMALL = 128, 64
FORWARD_TILES = {"fwd_BLOCK_M": SMALL, "fwd_BLOCK_N": SMALL}
NO_SMALL_BACKWARD = "its backward, compiled as by default, refuses them at D=64 (PyTorch 2.11)"

# Every mask, length and head size is compiled anew, and beyond torch's limit nothing is compiled.
MOST_COMPILED = 512


def flex_pattern(bench: Bench, size: Size, pattern: Pattern) -> list[Variant]:
    """FlexAttention over the pairs of a pattern, as its users have it: blocks of its default size
    in both passes, since a step has one block mask, which is made once and used again.
    """
    return [Variant(name="", make=lambda: _flex_over(bench, size, pattern, DEFAULT, None))]


def flex_small_blocks(bench: Bench, size: Size, pattern: Pattern) -> list[Variant]:
    """FlexAttention with smaller blocks, for whoever needs the forward alone."""
    return [
        Variant(
            name="",
            make=lambda: _flex_over(bench, size, pattern, SMALL, FORWARD_TILES),
            passes=("forward",),
            note=NO_SMALL_BACKWARD,
        )
    ]


def _flex_over(
    bench: Bench, size: Size, pattern: Pattern, block: int, options: dict[str, int] | None
) -> Work:
    attend, build = _flex(bench.compiled)
    q, k, v = inputs(size, bench.device)
    allowed = mask_of(pattern, size.length, bench.device)
    n, device = size.length, str(bench.device)
    return Work(
        attend=lambda mask: attend(q, k, v, block_mask=mask, kernel_options=options),
        leaves=(q, k, v),
        mask=lambda: build(allowed, None, None, n, n, device=device, BLOCK_SIZE=block),
    )


def flex_learned(bench: Bench, size: Size, variance: Callable[[], Tensor]) -> list[Variant]:
    """FlexAttention with a bell and the reach of its variance, which learns: the block mask is made
    anew from the current reaches in every step.
    """

    def make() -> Work:
        attend, build = _flex(bench.compiled)
        reach_of = torch.compile(_reach_of, dynamic=False) if bench.compiled else _reach_of
        q, k, v = inputs(size, bench.device)
        learned = variance()
        score = bell_score(learned)
        b, h, n = learned.shape

        def mask() -> Any:
            allowed = reach_mask(reach_of(learned))
            return build(allowed, b, h, n, n, device=str(bench.device), BLOCK_SIZE=DEFAULT)

        return Work(
            attend=lambda mask: attend(q, k, v, score_mod=score, block_mask=mask),
            leaves=(q, k, v, learned),
            mask=mask,
            remade=True,
        )

    return [Variant(name="", make=make)]


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
