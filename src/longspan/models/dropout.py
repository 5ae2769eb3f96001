"""Dropout that costs a CPU little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..functional.observed import observed, plain
from ..kernels import cpu
from ..kernels.cpu.dropout import dropout

__all__ = ["Dropout"]


class Dropout(nn.Dropout):
    """PyTorch's dropout, whose draws on a CPU are those of attention (Philox).

    There PyTorch draws one number after the other, which takes as long as a matrix product of the
    layer, and keeps a mask. Here the same draws are made once more in the backward pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self._compiled(x):
            return super().forward(x)
        seed = int(torch.randint(2**63 - 1, (1,)))
        found: Tensor = _Dropped.apply(x, self.p, seed)
        return found

    def _compiled(self, x: Tensor) -> bool:
        """Whether the compiled module may take it; who compiles or watches sees PyTorch's own."""
        return (
            0 < self.p < 1
            and not self.inplace
            and x.dtype in (torch.float32, torch.bfloat16)
            and x.device.type == "cpu"
            and cpu.available()
            and not torch.compiler.is_compiling()
            and plain([x])
            and not observed()
        )


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        return dropout(x.detach().contiguous(), p, seed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Dropped.apply(grads[0], ctx.p, ctx.seed), None, None
