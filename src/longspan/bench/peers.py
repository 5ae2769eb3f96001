"""The peers, each as its users would call it, with nothing timed that is not attention.

Projections are left out everywhere: a peer is handed queries, keys and values, in the layout in
which its own projections would have left them. The peers that compute the same pairs as longspan
are held against it by a test, which runs where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..measure import Size
from .contenders import Work, installed

__all__ = [
    "entmax15_library",
    "entmax_library",
    "hugging_face_bigbird",
    "hugging_face_longformer",
    "local_attention",
    "performer",
    "sdpa",
]


def sdpa(size: Size) -> Work:
    """PyTorch's dense attention: all pairs."""
    q, k, v = size.inputs()
    return Work(forward=lambda: F.scaled_dot_product_attention(q, k, v), leaves=(q, k, v))


def local_attention(reach: int) -> Callable[[Size], Work]:
    """local-attention with an exact window: the same pairs as `Window(reach, reach)`."""

    def make(size: Size) -> Work:
        module = installed("local_attention").LocalAttention(
            window_size=reach,
            look_backward=1,
            look_forward=1,
            exact_windowsize=True,
            use_rotary_pos_emb=False,
        )
        q, k, v = size.inputs()
        return Work(forward=lambda: module(q, k, v), leaves=(q, k, v))

    return make


class _Given(nn.Module):
    """Stands in for a projection: gives what the projection would have made."""

    def __init__(self, x: Tensor, *, fresh: bool = False) -> None:
        super().__init__()
        self.x, self.fresh = x, fresh

    def forward(self, hidden: Tensor) -> Tensor:
        return self.x.clone() if self.fresh else self.x


def hugging_face_longformer(reach: int) -> Callable[[Size], Work]:
    """The attention of Hugging Face's Longformer, without its projections: `Window(reach, reach)`.

    Its own `forward` runs as it is, masks and all, but with ready-made queries, keys and values in
    place of the three projections. The queries alone are copied first (1 % of its time), because
    it scales what its projection gave it in place.
    """

    def make(size: Size) -> Work:
        modeling = installed("transformers.models.longformer.modeling_longformer")
        config = installed("transformers").LongformerConfig(
            hidden_size=size.heads * size.head_dim,
            num_attention_heads=size.heads,
            attention_window=[2 * reach],
            attention_probs_dropout_prob=0.0,
        )
        module = modeling.LongformerSelfAttention(config, layer_id=0)
        shape = (size.length, size.batch, size.heads * size.head_dim)
        given = [x.detach().permute(2, 0, 1, 3).reshape(shape).contiguous() for x in size.inputs()]
        leaves = tuple(x.requires_grad_() for x in given)
        module.query = _Given(leaves[0], fresh=True)
        module.key, module.value = _Given(leaves[1]), _Given(leaves[2])
        hidden = torch.empty(size.batch, size.length, shape[2])
        nothing = torch.zeros(size.batch, size.length)

        def forward() -> Tensor:
            found: Tensor = module(
                hidden,
                attention_mask=nothing,
                is_index_masked=nothing.bool(),
                is_index_global_attn=nothing.bool(),
                is_global_attn=False,
            )[0]
            return found

        return Work(forward=forward, leaves=leaves)

    return make


class _NoDenseMap(TorchFunctionMode):
    """Keeps a call from filling a dense `(B, H, N, N)` tensor: it gets one without memory."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and args[2:] == (self.length, self.length):
            return torch.empty(*args, device="meta")
        writes = func in (Tensor.__setitem__, Tensor.scatter_)
        if writes and args[0].device.type == "meta":
            return args[0]
        return func(*args, **kwargs)


def hugging_face_bigbird(
    *, block: int = 64, drawn: int = 3, dense_map: bool = False
) -> Callable[[Size], Work]:
    """The attention of Hugging Face's BigBird, without its projections: the pairs of `bigbird`, but
    for the draw.

    In training mode, since it draws no blocks otherwise. It always puts together a dense matrix of
    probabilities for the caller to look at, N² numbers a head.

    Args:
        block: tokens a block.
        drawn: random blocks for each block of queries.
        dense_map: whether to pay for that matrix, as its users do. Without it, only the attention
            is left.
    """

    def make(size: Size) -> Work:
        modeling = installed("transformers.models.big_bird.modeling_big_bird")
        config = installed("transformers").BigBirdConfig(
            hidden_size=size.heads * size.head_dim,
            num_attention_heads=size.heads,
            block_size=block,
            num_random_blocks=drawn,
            max_position_embeddings=max(4096, size.length),
        )
        module = modeling.BigBirdBlockSparseAttention(config, seed=0).train()
        ones = torch.ones(size.batch, size.length)
        blocked, band, rows, columns = modeling.BigBirdModel.create_masks_for_block_sparse_attn(
            ones, block
        )
        q, k, v = size.inputs()

        def forward() -> Tensor:
            found: Tensor = module.bigbird_block_sparse_attention(
                q,
                k,
                v,
                band,
                rows,
                columns,
                blocked,
                blocked,
                size.heads,
                drawn,
                size.head_dim,
                block,
                block,
                size.batch,
                size.length,
                size.length,
                seed=0,
                plan_from_length=None,
                plan_num_rand_blocks=None,
            )[0]
            return found

        def without_map() -> Tensor:
            with _NoDenseMap(size.length):
                return forward()

        return Work(forward=forward if dense_map else without_map, leaves=(q, k, v))

    return make


def performer(size: Size) -> Work:
    """performer-pytorch: all pairs, approximately, in time that grows with the length."""
    module = installed("performer_pytorch").FastAttention(dim_heads=size.head_dim)
    q, k, v = size.inputs()
    return Work(forward=lambda: module(q, k, v), leaves=(q, k, v))


def entmax15_library(scores: Tensor) -> Callable[[], Tensor]:
    """1.5-entmax of the entmax library, along the last dim."""
    entmax = installed("entmax")
    return lambda: entmax.entmax15(scores, dim=-1)


def entmax_library(scores: Tensor, alpha: Tensor) -> Callable[[], Tensor]:
    """α-entmax of the entmax library with a gradient to α, by its own number of bisections."""
    entmax = installed("entmax")
    return lambda: entmax.entmax_bisect(scores, alpha, dim=-1)
