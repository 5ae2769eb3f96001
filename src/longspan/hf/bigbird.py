"""BigBird checkpoints of transformers, as an encoder with neighbouring and random blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import describe, need_int
from ..models import Encoder
from ..nn import Attention, BigBird, Mechanism
from .checkpoints import Source, base_of, encoder_from, whole

__all__ = ["from_bigbird"]

KINDS = ("block_sparse", "original_full")

# For texts of these lengths they draw as the paper's code did, for all blocks of the model's own
# length, from the first 1024 tokens.
AS_IN_THE_PAPER, DRAWN_FROM = (1024, 3072, 4096), 1024


def from_bigbird(
    model: Source,
    *,
    length: int | None = None,
    attention: Literal["block_sparse", "original_full"] | None = None,
) -> Encoder:
    """An encoder with the weights of a BigBird of transformers, which are copied.

        encoder = from_bigbird("google/bigbird-roberta-base")
        y = encoder(tokens, key_padding=mask.bool())

    Every layer is a `BigBird` with the checkpoint's blocks, and with the random blocks that their
    code draws in training for texts of `length` tokens, for each layer and head its own. With texts
    of that length it computes what theirs computes in training. What differs:

    - It is one function. Theirs draws anew for every other length; in evaluation it takes block 0
      for every random block, which its softmax then counts 1 + num_random_blocks times; and it
      turns to full attention for good once a text has at most (5 + 2·num_random_blocks)·block_size
      tokens. For such texts load it with a `length` of no more, which gives full attention too.
    - A drawn block that is global counts once. Theirs counts it twice, which happens with texts of
      1024 tokens alone, for which their code may draw the last block.
    - With padding, the last global tokens are those at the end of each sample's own text; theirs
      are in the last block, padded or not.
    - Positions count padding. Pad on the right.
    - The embedding is normalised before dropout, not after it. Attention's weights are not dropped,
      as in their sparse attention.
    - Where a checkpoint scales its embedding (`rescale_embeddings`), the weights are scaled; where
      it has no biases (`use_bias=False`), they are 0, and train.
    - Pooled vectors are left out; a head is loaded by `head_of`.

    Args:
        model: a `BigBirdModel`, a model with one inside, or the path or name of a checkpoint, for
            `from_pretrained`.
        length: the most tokens a text will have; None is as many as the model has positions.
        attention: `"block_sparse"` or `"original_full"`, which is full attention; None is what the
            checkpoint's config says.

    Returns:
        The encoder, on the model's device and in its dtype; `longspan.models.save` writes it.
    """
    base = base_of("from_bigbird", whole("from_bigbird", model, "big_bird"))
    config = base.config
    positions = base.embeddings.position_embeddings.num_embeddings
    length = positions if length is None else length
    need_int("from_bigbird: length", length, at_least=1)
    if length > positions:
        raise ValueError(
            f"from_bigbird: length must be at most {positions}, the positions that the model has, "
            f"got {length}; longspan.hf.lengthen gives it more"
        )
    attention = config.attention_type if attention is None else attention
    if attention not in KINDS:
        raise ValueError(
            f"from_bigbird: attention must be one of {', '.join(KINDS)}, got {describe(attention)}"
        )
    block, drawn = config.block_size, config.num_random_blocks
    sparse = attention == "block_sparse" and length > (5 + 2 * drawn) * block
    draws = _their_draws(config, length) if sparse else []

    def mechanism(layer: int) -> Mechanism:
        if not sparse:
            return Attention()
        return BigBird(length, block=block, table=draws[layer])

    return encoder_from(
        "from_bigbird",
        base,
        mechanism,
        scale=config.hidden_size**0.5 if config.rescale_embeddings else 1.0,
        attention_dropout=0.0 if sparse else config.attention_probs_dropout_prob,
    )


def _their_draws(config: Any, length: int) -> list[Tensor]:
    """For each layer the random blocks that their code draws in training for texts of a length,
    `(heads, blocks, drawn)`.
    """
    import numpy as np
    from transformers.models.big_bird import modeling_big_bird

    theirs: Any = modeling_big_bird.BigBirdBlockSparseAttention
    block, drawn, heads = config.block_size, config.num_random_blocks, config.num_attention_heads
    blocks = -(-length // block)
    padded, most = blocks * block, config.max_position_embeddings
    # All that its functions read of the module; in evaluation they would draw nothing.
    module = SimpleNamespace(
        training=True, _get_single_block_row_attention=theirs._get_single_block_row_attention
    )

    def draw() -> Any:
        if padded in AS_IN_THE_PAPER:
            return [
                theirs._bigbird_block_rand_mask(
                    module, most, most, block, block, drawn, last_idx=DRAWN_FROM
                )[: blocks - 2]
                for _ in range(heads)
            ]
        plan = theirs._get_rand_attn_plan(padded, block, drawn)
        return theirs._bigbird_block_rand_mask_with_head(
            module, padded, padded, block, block, heads, *plan
        )

    found = []
    before = np.random.get_state()
    try:
        for layer in range(config.num_hidden_layers):
            # They seed the generator that everything shares, by the number of the layer.
            np.random.seed(layer)
            table = torch.full((heads, blocks, drawn), -1)
            # The first and the last block see everything, and draw nothing.
            table[:, 1:-1] = torch.from_numpy(np.stack(draw())).long()
            found.append(table)
    finally:
        np.random.set_state(before)
    return found
