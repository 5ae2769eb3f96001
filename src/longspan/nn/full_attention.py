"""Every token sees every other, by PyTorch's own kernels: what others are compared with."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import need_bool
from ..patterns import Causal, Full
from .mechanism import NO_SETTING, Asked, Mechanism, Setting

__all__ = ["FullAttention"]


class FullAttention(Mechanism):
    """Full attention, as quick as PyTorch has it.

        y = softmax(q·kᵀ / √D) v

    The same as `Attention()`, or `Attention(Causal())`, computed by
    `torch.nn.functional.scaled_dot_product_attention`: the fastest dense kernels, for fair
    comparisons. On a GPU they may sum gradients in another order each time, and let one NaN spoil
    more than its own pairs.

    `longspan.attention` computes what they do not take (weights of the layer; a causal call with
    padding, or with more keys than queries), or take only with the whole matrix in memory (padding
    or dropout on a CPU).

    Global tokens change nothing: every token sees every token.

    Args:
        causal: no token looks ahead.

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need" (arXiv 1706.03762).
    """

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        need_bool("FullAttention: causal", causal)
        self.is_causal = causal

    @property
    def causal(self) -> bool:
        return self.is_causal

    @property
    def settings(self) -> dict[str, Any]:
        return {"causal": self.is_causal}

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        return Asked(Causal() if self.is_causal else Full())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        padding, dropout = setting.key_padding, setting.dropout if self.training else 0.0
        aside = self.is_causal and (padding is not None or q.shape[2] != k.shape[2])
        if q.device.type == "cpu":
            aside = aside or padding is not None or dropout > 0
        if setting.weights or setting.within is not None or aside:
            return super().forward(q, k, v, setting)
        return self._by_pytorch(q, k, v, setting, dropout)

    def _by_pytorch(
        self, q: Tensor, k: Tensor, v: Tensor, setting: Setting, dropout: float
    ) -> Tensor:
        padding = setting.key_padding
        seen = there = None
        if padding is not None:
            # A sample without any key sees nothing, and gives 0 as everywhere else.
            there = padding.any(-1)[:, None, None, None]
            seen = padding[:, None, None, :] | ~there
        found = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=seen,
            dropout_p=dropout,
            is_causal=self.is_causal,
            scale=setting.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return found if there is None else torch.where(there, found, 0.0)
