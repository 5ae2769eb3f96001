"""Longformer checkpoints of transformers, as an encoder with sliding windows."""

from __future__ import annotations

from ..models import Encoder
from ..nn import SlidingWindow
from .checkpoints import Source, base_of, encoder_from, whole

__all__ = ["from_longformer"]

GLOBAL = {
    "attention.mechanism.q_global": "attention.self.query_global",
    "attention.mechanism.k_global": "attention.self.key_global",
    "attention.mechanism.v_global": "attention.self.value_global",
}


def from_longformer(model: Source) -> Encoder:
    """An encoder with the weights of a Longformer of transformers, which are copied.

        encoder = from_longformer("allenai/longformer-base-4096")
        y = encoder(tokens, key_padding=mask.bool(), global_tokens=global_mask.bool())

    Every layer is a `SlidingWindow` with half of the checkpoint's `attention_window` to each side,
    and with its projections of global tokens. Vectors of real tokens are those of the checkpoint's
    own model. What differs:

    - Texts of any length, where theirs are padded to a multiple of the window.
    - Which tokens are global comes with the call, always; some of their models choose by themselves
      (the first token for classification, the question for answers).
    - Positions count padding. Pad on the right, as their tokenizer does.
    - Pooled vectors are left out; a head is loaded by `head_of`.

    Args:
        model: a `LongformerModel`, a model with one inside, or the path or name of a checkpoint,
            for `from_pretrained`.

    Returns:
        The encoder, on the model's device and in its dtype; `longspan.models.save` writes it.
    """
    base = base_of("from_longformer", whole("from_longformer", model, "longformer"))
    config = base.config
    windows = config.attention_window
    if isinstance(windows, int):
        windows = [windows] * config.num_hidden_layers
    return encoder_from(
        "from_longformer",
        base,
        lambda layer: SlidingWindow(
            config.hidden_size, config.num_attention_heads, left=windows[layer] // 2
        ),
        # As in RoBERTa, positions begin after the row of padding.
        first=base.embeddings.padding_idx + 1,
        attention_dropout=config.attention_probs_dropout_prob,
        more=GLOBAL,
    )
