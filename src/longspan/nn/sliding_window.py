"""A sliding window with global tokens of each sample's own: Longformer's attention."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import describe, need_bool, need_int
from ..functional.attention import attention
from ..patterns import Global, Pattern, PerHead, Window
from .causality import keys_remembered
from .global_tokens import FewTokens, few_tokens
from .mechanism import NO_SETTING, Asked, Mechanism, Setting, head_size

__all__ = ["SlidingWindow"]

# As many times the global rows of all heads as there are channels: from there on it is quicker to
# project all tokens for them.
FEW = 4


class SlidingWindow(Mechanism):
    """Every token sees its neighbours, and a few global tokens see and are seen by all.

        y_i = softmax(q_i · k_jᵀ / √D) v_j      over j = i + δ·dilation, −left ≤ δ ≤ right,
                                                and all global j, in one softmax
        y_g = softmax(q′_g · k′_jᵀ / √D) v′_j   over all j, for global g

    where q′, k′ and v′ are the mechanism's own projections of the layer's input. They start as
    copies of the layer's (`MultiheadAttention` sees to it, unless they were loaded or copied
    before), and cost nothing in a call without global tokens: in training their gradient is 0 then.
    Without `global_projections`, global rows use the layer's q, k and v.

    Which tokens are global comes with the call, and may differ from sample to sample. Their rows
    are gathered, so every sample costs as many rows as the one with the most of them. To know how
    many that are means waiting for the GPU, unless `most_global` says it.

    Differs from the paper's and from Hugging Face's code: it takes any length, without padding to a
    multiple of the window; each side and each head may have its own window; a pair exists or does
    not, where they add −10000 to the score; rows of padded tokens are computed like others, not set
    to 0. `longspan.hf.from_longformer` loads checkpoints.

    Args:
        embed_dim: channels of the layer.
        num_heads: query heads that they are split into.
        left: steps to the left; an int, or a list with one for each head. Half of the paper's w.
        right: steps to the right, likewise; None is as many as to the left, or 0 when causal.
        dilation: tokens a step, likewise.
        causal: no token looks ahead. Such a window takes no global tokens.
        global_projections: global rows have projections of their own.
        most_global: no sample has more global tokens than this, padded ones not counted, so that a
            GPU need not be waited for, and looks for no more. More of them raise on a CPU, and give
            NaN in their rows elsewhere.

    Attributes:
        fresh: the global projections are as they were made, neither copied nor loaded yet.

    Reference:
        Beltagy, Peters, Cohan 2020, "Longformer: The Long-Document Transformer" (arXiv 2004.05150).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        left: int | Sequence[int],
        right: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        causal: bool = False,
        global_projections: bool = True,
        most_global: int | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_size("SlidingWindow", embed_dim, num_heads)
        need_bool("SlidingWindow: causal", causal)
        need_bool("SlidingWindow: global_projections", global_projections)
        if most_global is not None:
            need_int("SlidingWindow: most_global", most_global, at_least=1)
        if right is None:
            right = 0 if causal else left
        lefts = _for_heads("left", left, num_heads, at_least=0)
        rights = _for_heads("right", right, num_heads, at_least=0)
        steps = _for_heads("dilation", dilation, num_heads, at_least=1)
        if causal and any(rights):
            raise ValueError(
                f"SlidingWindow: right must be 0 in a causal window, got {right}; leave it out"
            )
        windows = [Window(*each) for each in zip(lefts, rights, steps, strict=True)]
        alike = all(window == windows[0] for window in windows)
        self.window: Pattern = windows[0] if alike else PerHead(windows)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.is_causal = causal
        self.most_global = most_global
        # A causal window never has a global row.
        self.global_projections = global_projections and not causal
        self.fresh = self.global_projections
        if self.global_projections:
            self.q_global = nn.Linear(embed_dim, embed_dim)
            self.k_global = nn.Linear(embed_dim, embed_dim)
            self.v_global = nn.Linear(embed_dim, embed_dim)

    @property
    def causal(self) -> bool:
        return self.is_causal

    @property
    def settings(self) -> dict[str, Any]:
        windows = self.window.patterns if isinstance(self.window, PerHead) else (self.window,)
        sides = [(own.left, own.right, own.dilation) for own in windows if isinstance(own, Window)]
        lefts, rights, steps = (list(side) for side in zip(*sides, strict=True))
        one = len(sides) == 1
        return {
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "left": lefts[0] if one else lefts,
            "right": rights[0] if one else rights,
            "dilation": steps[0] if one else steps,
            "causal": self.is_causal,
            "global_projections": self.global_projections,
            "most_global": self.most_global,
        }

    @property
    def remembers(self) -> int | None:
        return keys_remembered(self.window) if self.is_causal else None

    def copy_projections(self, q: nn.Linear, k: nn.Linear, v: nn.Linear) -> None:
        """Makes the global projections deep copies of a layer's own, as the paper starts them."""
        if not self.global_projections:
            return
        if q.out_features != self.embed_dim or k.out_features % self.head_dim:
            raise ValueError(
                f"SlidingWindow: the layer's projections must be for heads of {self.head_dim} and "
                f"queries of {self.embed_dim} channels, got {k} and {q}"
            )
        self.q_global, self.k_global, self.v_global = deepcopy(q), deepcopy(k), deepcopy(v)
        self.fresh = False

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.fresh = False

    def asks(self, q: Tensor, m: int, setting: Setting) -> Asked:
        tokens = setting.global_tokens
        if tokens is not None and self.is_causal:
            raise ValueError(
                "SlidingWindow: a causal window takes no global_tokens, whose rows would look "
                "ahead; use Attention(Causal() & (Window(left, 0) | Global(tokens))), in which "
                "they look back only"
            )
        if tokens is None:
            return Asked(self.window)
        few = self._bounded(setting)
        whole = Global(tokens if few is None else few.positions, rows=not self.global_projections)
        return Asked(self.window | whole)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        y = super().forward(q, k, v, setting)
        tokens = setting.global_tokens
        if tokens is None:
            return self._with_projections(y)
        few = self._bounded(setting)
        if self.global_projections:
            y = self._with_global_rows(y, tokens, few or self._counted(tokens, setting), setting)
        return y if few is None else few.marked(y)

    def _bounded(self, setting: Setting) -> FewTokens | None:
        """The global tokens, if it is known how many a sample has at most."""
        tokens = setting.global_tokens
        if tokens is None or self.most_global is None:
            return None
        return few_tokens("SlidingWindow", tokens, setting.key_padding, self.most_global)

    def _counted(self, tokens: Tensor, setting: Setting) -> FewTokens:
        """The global tokens, with as many places as the sample with the most of them needs."""
        real = tokens if setting.key_padding is None else tokens & setting.key_padding
        most = int(real.sum(-1).max()) if len(real) else 0
        return few_tokens("SlidingWindow", tokens, setting.key_padding, most)

    def _with_global_rows(
        self, y: Tensor, tokens: Tensor, few: FewTokens, setting: Setting
    ) -> Tensor:
        """`y` with the rows of global tokens, bool `(B, N)`, computed anew in their place."""
        x = self._input(y, tokens, setting)
        places, there = few.places, few.there[:, None, :, None]
        if places.shape[1] == 0:
            return self._with_projections(y)
        q = self._heads(self.q_global(x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))))
        dropout = setting.dropout if self.training else 0.0
        if self._few(x, places.shape[1]):
            rows = self._from_input(q, x, setting, dropout)
        else:
            k, v = self._heads(self.k_global(x)), self._heads(self.v_global(x))
            rows = attention(
                q, k, v, scale=setting.scale, key_padding=setting.key_padding, dropout=dropout
            )
        index = places[:, None, :, None].expand(rows.shape)
        return y.scatter(2, index, torch.where(there, rows.to(y.dtype), y.gather(2, index)))

    def _with_projections(self, y: Tensor) -> Tensor:
        """`y`, for which none of the global projections was needed. Their gradient is 0, and not
        None, which what gathers gradients of several processes would wait for.
        """
        if not self.training or not torch.is_grad_enabled():
            return y
        learned = [own.flatten()[0] for own in self.parameters() if own.requires_grad]
        return y + 0.0 * torch.stack(learned).sum() if learned else y

    def _few(self, x: Tensor, most: int) -> bool:
        """Whether projections of all tokens would cost more than the rows that look at them. On a
        GPU they cost next to nothing; and a projection that was changed is called as it is.
        """
        return (
            x.device.type == "cpu"
            and FEW * most * self.num_heads <= self.embed_dim
            and all(_is_plain(own) for own in (self.k_global, self.v_global))
        )

    def _from_input(self, q: Tensor, x: Tensor, setting: Setting, dropout: float) -> Tensor:
        """Global rows `(B, H, G, D)` without projections of all tokens, by moving those of keys and
        values to the other side of the sums:

            q · (W_k x_j + b_k) = (W_kᵀ q) · x_j + q · b_k
            Σ_j p_j (W_v x_j + b_v) = W_v Σ_j p_j x_j + b_v Σ_j p_j

        where q · b_k is the same for all j, and no softmax sees it.
        """
        k, v = self.k_global, self.v_global
        key_heads, (batch, heads, most, size) = k.out_features // self.head_dim, q.shape
        each = heads // key_heads * most
        shared = q.reshape(batch, key_heads, each, size)  # (B, Hk, H / Hk · G, D)
        asked = shared @ k.weight.unflatten(0, (key_heads, size))
        tokens = x[:, None]
        # With a channel of ones the sum of what dropout has left comes out beside the others.
        values = tokens if dropout == 0 else F.pad(tokens, (0, 1), value=1.0)
        found = attention(
            asked.reshape(batch, 1, heads * most, self.embed_dim),
            tokens,
            values,
            scale=size**-0.5 if setting.scale is None else setting.scale,
            key_padding=setting.key_padding,
            dropout=dropout,
        )
        sums = found.reshape(batch, key_heads, each, found.shape[-1])
        rows = sums[..., : self.embed_dim] @ v.weight.unflatten(0, (key_heads, size)).mT
        if v.bias is not None:
            left = 1.0 if dropout == 0 else sums[..., self.embed_dim :]
            rows = rows + left * v.bias.unflatten(0, (key_heads, 1, size))
        if k.bias is not None:
            # Its gradient is 0, and not None, which what gathers gradients would wait for.
            rows = rows + 0.0 * k.bias.sum()
        return rows.reshape(batch, heads, most, size)

    def _input(self, y: Tensor, tokens: Tensor, setting: Setting) -> Tensor:
        """The layer's input, checked."""
        x, (batch, heads, n, size) = setting.x, y.shape
        if setting.weights or setting.within is not None:
            raise ValueError(
                "SlidingWindow: rows of global tokens with projections of their own see all keys "
                "alike, and the layer adds biases to its scores or has pairs that must not exist "
                "(Setting's weights and within); make it with global_projections=False"
            )
        if x is None:
            raise ValueError(
                "SlidingWindow: global tokens with projections of their own need the layer's "
                "input: give Setting(x=…), or make it with global_projections=False"
            )
        if n != tokens.shape[1] or x.shape != (batch, n, self.embed_dim):
            raise ValueError(
                "SlidingWindow: global tokens are of self-attention: x must be of shape "
                f"{(batch, tokens.shape[1], self.embed_dim)}, a row for each query and key, got "
                f"{describe(x)} for {n} queries"
            )
        if (heads, size) != (self.num_heads, self.head_dim):
            raise ValueError(
                f"SlidingWindow: q and v must have {self.num_heads} heads of {self.head_dim}, as "
                f"the global projections have, got {heads} of {size}"
            )
        return x

    def _heads(self, projected: Tensor) -> Tensor:
        """`(B, N, heads · size)` as `(B, heads, N, size)`."""
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def extra_repr(self) -> str:
        return (
            f"heads={self.num_heads}, window={self.window!r}, causal={self.is_causal}, "
            f"global_projections={self.global_projections}"
        )


def _is_plain(projection: nn.Module) -> bool:
    """Whether a projection is its weight and bias, and nothing else sees it being called."""
    watched = projection._forward_hooks or projection._forward_pre_hooks
    return type(projection) is nn.Linear and not watched


def _for_heads(name: str, value: int | Sequence[int], heads: int, *, at_least: int) -> list[int]:
    """One number for each head."""
    if not isinstance(value, (list, tuple)):
        need_int(f"SlidingWindow: {name}", value, at_least=at_least)
        assert isinstance(value, int)
        return [value] * heads
    if len(value) != heads:
        raise ValueError(
            f"SlidingWindow: {name} must be an int or a list with one for each of {heads} heads, "
            f"got {len(value)}"
        )
    for each in value:
        need_int(f"SlidingWindow: {name}", each, at_least=at_least)
    return list(value)
