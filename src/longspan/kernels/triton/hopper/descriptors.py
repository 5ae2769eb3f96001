"""Tensors as the TMA reads them."""

from __future__ import annotations

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
    return TensorDescriptor(x, x.shape, x.stride(), block, _layout(rows, channels, x.dtype))


def numbers_tiles(x: Tensor, count: int, rows: int) -> TensorDescriptor:
    """The first `count` rows of numbers `(units, numbers, stride)`, in pieces of one number."""
    shape = (x.shape[0], x.shape[1], count)
    return TensorDescriptor(x, shape, x.stride(), [1, 1, rows], _flat())
