"""Where a token stands: learned, sinusoidal or rotary positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["Rotary", "Sinusoidal"]


class Sinusoidal(nn.Module):
    """sin and cos of position / 10000^(2c/width), one after the other (Vaswani et al. 2017,
    §3.5), for any length.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {width}")
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        """`(…, width)` for int positions `(…)`."""
        half = torch.arange(0, self.width, 2, device=positions.device, dtype=torch.float32)
        angle = positions[..., None].float() * torch.exp(-math.log(10000.0) * half / self.width)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class Rotary(nn.Module):
    """Turns each pair of channels (c, c + D/2) by position · base^(−2c/D) (Su et al. 2021, arXiv
    2104.09864): scores then depend on distances alone.
    """

    def __init__(self, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"rotary positions need an even number of channels, got {head_dim}")
        self.head_dim, self.base = head_dim, base

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x `(B, H, N, D)` at int positions `(N,)` or `(B, N)`."""
        half = torch.arange(0, self.head_dim, 2, device=x.device, dtype=torch.float32)
        rate = self.base ** (-half / self.head_dim)
        # (B|1, 1, N, D / 2)
        angle = positions.reshape(-1, 1, positions.shape[-1], 1).float() * rate
        first, second = x.float().chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        turned = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
        return turned.to(x.dtype)
