"""Tensors as the TMA reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

__all__ = ["numbers_tiles", "padded_head", "tiles_of"]

DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@lru_cache(maxsize=64)
def _layout(rows: int, channels: int, dtype: torch.dtype) -> Any:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, channels], DTYPES[dtype])


@lru_cache(maxsize=1)
def _flat() -> Any:
    return gl.NVMMASharedLayout(0, 32, 3)


def padded_head(channels: int) -> int:
    """Channels as they lie in a tile: a power of two, filled up with 0."""
    return max(16, 1 << (channels - 1).bit_length())


def tiles_of(x: Tensor, rows: int) -> TensorDescriptor:
    """`(B, H, N, D)` in tiles of some rows."""
    channels = padded_head(x.shape[3])
    block = [1, 1, rows, channels]
    # Of a single sample, head or row nobody uses the stride, which may be anything.
    strides = [s if n > 1 else channels for s, n in zip(x.stride(), x.shape, strict=True)]
    strides[3] = 1
    return _descriptor(x, x.shape, strides, block, _layout(rows, channels, x.dtype))


def numbers_tiles(x: Tensor, count: int, rows: int) -> TensorDescriptor:
    """The first `count` rows of numbers `(units, numbers, stride)`, in pieces of one number."""
    return _descriptor(x, (*x.shape[:2], count), x.stride(), [1, 1, rows], _flat())


def _descriptor(
    x: Tensor, shape: Sequence[int], strides: Sequence[int], block: list[int], layout: Any
) -> TensorDescriptor:
    """A descriptor whose fields are known to be right: checking them again would take a third of
    the time that a launch has.
    """
    made: TensorDescriptor = object.__new__(TensorDescriptor)
    made.base, made.shape, made.strides = x, shape, strides
    made.block_shape, made.layout, made.padding = block, layout, "zero"
    return made
