"""The attention of one layer: projections, attention, projection back, residual and norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...measure import Size
from ...nn import BigBird, Mechanism, MultiheadAttention, SlidingWindow
from ..contenders import Contender, Work, installed
from ..problem import Problem, Results, size_of
from ..records import Figure

__all__ = ["bigbird_layer", "longformer_layer"]

REACH, BLOCK, DRAWN = 128, 64, 3

OURS, THEIRS = "longspan", "Hugging Face"


def longformer_layer(quick: bool) -> Problem:
    """A window of 128 each side and one global token, [CLS], with projections of its own."""
    reach = 32 if quick else REACH
    return _problem(
        "longformer",
        f"Longformer's layer: {reach} each side, one global token",
        size_of(quick),
        _ours(lambda size: SlidingWindow(_width(size), size.heads, left=reach), first_global=True),
        _longformer(reach),
        2.0,
    )


def bigbird_layer(quick: bool) -> Problem:
    """Blocks of 64: neighbours, three random ones, and both ends global."""
    return _problem(
        "bigbird",
        f"BigBird's layer: blocks of {BLOCK}, {DRAWN} random, in training",
        size_of(quick, length=8192 if quick else 4096),
        _ours(lambda size: BigBird(size.length, block=BLOCK, drawn=DRAWN)),
        _bigbird,
        2.5,
    )


def _problem(
    name: str,
    title: str,
    size: Size,
    ours: Callable[[Size], Work],
    theirs: Callable[[Size], Work],
    target: float,
) -> Problem:
    def judge(results: Results) -> list[Figure]:
        _, ratio = results.ratio(THEIRS, OURS)
        what = f"{title}, beside {THEIRS}'s"
        asked = (None, target)
        return [
            results.figure(what, "× faster", (None, ratio), asked, at_least=True, of=(OURS, THEIRS))
        ]

    return Problem(
        name=name,
        title=title,
        ours=(Contender(name=OURS, size=size, make=ours, forward=False),),
        peers=(Contender(name=THEIRS, size=size, make=theirs, forward=False),),
        judge=judge,
        wall=True,
    )


def _width(size: Size) -> int:
    return size.heads * size.head_dim


def _input(size: Size) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randn(size.batch, size.length, _width(size), generator=source).requires_grad_()


def _first(size: Size) -> Tensor:
    """The first token is the one that is global."""
    tokens = torch.zeros(size.batch, size.length, dtype=torch.bool)
    tokens[:, 0] = True
    return tokens


def _ours(
    mechanism: Callable[[Size], Mechanism], *, first_global: bool = False
) -> Callable[[Size], Work]:
    def make(size: Size) -> Work:
        layer = MultiheadAttention(_width(size), size.heads, mechanism(size)).train()
        norm = nn.LayerNorm(_width(size))
        x = _input(size)
        tokens = _first(size) if first_global else None
        return Work(
            forward=lambda: norm(x + layer(x, global_tokens=tokens)),
            leaves=(x, *layer.parameters(), *norm.parameters()),
        )

    return make


def _longformer(reach: int) -> Callable[[Size], Work]:
    def make(size: Size) -> Work:
        modeling = installed("transformers.models.longformer.modeling_longformer")
        config = _config("LongformerConfig", size, attention_window=[2 * reach])
        layer = modeling.LongformerAttention(config, layer_id=0).train()
        x, tokens = _input(size), _first(size)
        # As the model makes it: above 0 for global tokens, below for padding.
        mask = 10000.0 * tokens.float()

        def forward() -> Tensor:
            found: Tensor = layer(
                x,
                attention_mask=mask,
                is_index_masked=mask < 0,
                is_index_global_attn=tokens,
                is_global_attn=True,
            )[0]
            return found

        return Work(forward=forward, leaves=(x, *layer.parameters()))

    return make


def _bigbird(size: Size) -> Work:
    modeling = installed("transformers.models.big_bird.modeling_big_bird")
    config = _config(
        "BigBirdConfig",
        size,
        attention_type="block_sparse",
        block_size=BLOCK,
        num_random_blocks=DRAWN,
        max_position_embeddings=max(4096, size.length),
    )
    # In evaluation it draws no blocks.
    layer = modeling.BigBirdAttention(config, seed=0).train()
    x = _input(size)
    ones = torch.ones(size.batch, size.length)
    masks = modeling.BigBirdModel.create_masks_for_block_sparse_attn(ones, BLOCK)
    blocked, band, rows, columns = masks

    def forward() -> Tensor:
        found: Tensor = layer(
            x,
            band_mask=band,
            from_mask=rows,
            to_mask=columns,
            from_blocked_mask=blocked,
            to_blocked_mask=blocked,
        )[0]
        return found

    return Work(forward=forward, leaves=(x, *layer.parameters()))


def _config(name: str, size: Size, **more: Any) -> Any:
    return getattr(installed("transformers"), name)(
        hidden_size=_width(size),
        num_attention_heads=size.heads,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        **more,
    )
