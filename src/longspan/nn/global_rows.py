"""Global tokens that come with a call, whose rows may have projections of their own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import describe, need_bool, need_int
from ..functional.attention import attention
from ..patterns import Global
from .casting import cast_once
from .global_tokens import FewTokens, few_tokens
from .mechanism import NO_SETTING, Mechanism, Setting, head_size

__all__ = ["GlobalRows"]

# As many times the global rows of all heads as there are channels: from there on it is quicker to
# project all tokens for them.
FEW = 4


class GlobalRows(Mechanism):
    """A mechanism in which some tokens of each sample see everything.

        y_g = softmax(q′_g · k′_jᵀ / √D) v′_j   over all j, for global g

    where q′, k′ and v′ are the mechanism's own projections of the layer's input. They start as
    copies of the layer's (`MultiheadAttention` sees to it, unless they were loaded or copied
    before), and cost nothing in a call without global tokens: in training their gradient is 0 then.
    Without them global rows are as the mechanism `asks`, of the layer's q, k and v.

    Which tokens are global comes with the call, and may differ from sample to sample. Rows of their
    own are gathered, so every sample costs as many as the one with the most of them. To know how
    many that are means waiting for the GPU, unless `most_global` says it.

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
        global_projections: bool,
        most_global: int | None,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = head_size(owner, embed_dim, num_heads)
        need_bool(f"{owner}: global_projections", global_projections)
        if most_global is not None:
            need_int(f"{owner}: most_global", most_global, at_least=1)
        self.most_global = most_global
        self.global_projections = self.fresh = global_projections
        if global_projections:
            self.q_global = nn.Linear(embed_dim, embed_dim)
            self.k_global = nn.Linear(embed_dim, embed_dim)
            self.v_global = nn.Linear(embed_dim, embed_dim)

    def copy_projections(self, q: nn.Linear, k: nn.Linear, v: nn.Linear) -> None:
        """Makes the global projections deep copies of a layer's own, as the paper starts them."""
        if not self.global_projections:
            return
        if q.out_features != self.embed_dim or k.out_features % self.head_dim:
            raise ValueError(
                f"{type(self).__name__}: the layer's projections must be for heads of "
                f"{self.head_dim} and queries of {self.embed_dim} channels, got {k} and {q}"
            )
        self.q_global, self.k_global, self.v_global = deepcopy(q), deepcopy(k), deepcopy(v)
        self.fresh = False

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.fresh = False

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        y = super().forward(q, k, v, setting)
        tokens = setting.global_tokens
        if tokens is None:
            return self._with_projections(y)
        few = self._bounded(setting)
        if self.global_projections:
            y = self._with_global_rows(y, tokens, few or self._counted(tokens, setting), setting)
        return y if few is None else few.marked(y)

    def _global(self, setting: Setting) -> Global | None:
        """The pairs of global tokens, without rows that are computed apart."""
        if setting.global_tokens is None:
            return None
        few = self._bounded(setting)
        tokens = setting.global_tokens if few is None else few.positions
        return Global(tokens, rows=not self.global_projections)

    def _bounded(self, setting: Setting) -> FewTokens | None:
        """The global tokens, if it is known how many a sample has at most."""
        tokens = setting.global_tokens
        if tokens is None or self.most_global is None:
            return None
        wanted = tokens, setting.key_padding, self.most_global
        if setting.known is not None and setting.known.are_of(*wanted):
            return setting.known.few
        return few_tokens(type(self).__name__, *wanted)

    def _counted(self, tokens: Tensor, setting: Setting) -> FewTokens:
        """The global tokens, with as many places as the sample with the most of them needs."""
        real = tokens if setting.key_padding is None else tokens & setting.key_padding
        most = int(real.sum(-1).max()) if len(real) else 0
        return few_tokens(type(self).__name__, tokens, setting.key_padding, most)

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
            keys, values = cast_once(x, 2)
            k, v = self._heads(self.k_global(keys)), self._heads(self.v_global(values))
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
        weights = (weight for own in self._projections() for weight in own.parameters())
        learned = [weight.flatten()[0] for weight in weights if weight.requires_grad]
        return y + 0.0 * torch.stack(learned).sum() if learned else y

    def _projections(self) -> tuple[nn.Linear, ...]:
        if not self.global_projections:
            return ()
        return self.q_global, self.k_global, self.v_global

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
        owner = type(self).__name__
        if setting.weights or setting.within is not None:
            raise ValueError(
                f"{owner}: rows of global tokens with projections of their own see all keys alike, "
                "and the layer adds biases to its scores or has pairs that must not exist "
                "(Setting's weights and within); make it with global_projections=False"
            )
        if x is None:
            raise ValueError(
                f"{owner}: global tokens with projections of their own need the layer's input: "
                "give Setting(x=…), or make it with global_projections=False"
            )
        if n != tokens.shape[1] or x.shape != (batch, n, self.embed_dim):
            raise ValueError(
                f"{owner}: global tokens are of self-attention: x must be of shape "
                f"{(batch, tokens.shape[1], self.embed_dim)}, a row for each query and key, got "
                f"{describe(x)} for {n} queries"
            )
        if (heads, size) != (self.num_heads, self.head_dim):
            raise ValueError(
                f"{owner}: q and v must have {self.num_heads} heads of {self.head_dim}, as the "
                f"global projections have, got {heads} of {size}"
            )
        return x

    def _heads(self, projected: Tensor) -> Tensor:
        """`(B, N, heads · size)` as `(B, heads, N, size)`."""
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


def _is_plain(projection: nn.Module) -> bool:
    """Whether a projection is its weight and bias, and nothing else sees it being called."""
    watched = projection._forward_hooks or projection._forward_pre_hooks
    return type(projection) is nn.Linear and not watched
