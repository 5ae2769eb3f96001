"""BERT and RoBERTa checkpoints of transformers, as an encoder with any mechanism."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from ..errors import describe, need_int
from ..models import Encoder
from ..nn import Attention, Mechanism
from .checkpoints import Source, base_of, encoder_from, whole
from .lengthen import lengthen

__all__ = ["from_bert"]

KINDS = ("bert", "roberta", "xlm-roberta", "camembert")


def from_bert(
    model: Source,
    mechanism: Callable[[int], Mechanism] | None = None,
    positions: int | None = None,
    *,
    attention_dropout: float | None = None,
) -> Encoder:
    """An encoder with the weights of a BERT or RoBERTa of transformers, which are copied.

        encoder = from_bert(
            "google-bert/bert-base-uncased",
            lambda layer: LearnedWindow(768, 12, mean_reach=64),
            positions=4096,
        )

    With full attention, vectors of real tokens are those of the checkpoint's own model. Weights of
    the mechanism itself are not in the checkpoint: they start as the mechanism makes them, but for
    projections of global tokens, which start as copies of the layer's. What differs:

    - Positions count padding. Pad on the right, as their tokenizer does.
    - Pooled vectors are left out; a head is loaded by `head_of`.

    Args:
        model: a `BertModel` or `RobertaModel`, a model with one inside, or the path or name of a
            checkpoint, for `from_pretrained`.
        mechanism: makes one for the number of a layer; None is full attention.
        positions: the most tokens a text will have. More than the model has are copies of those
            that it has learned, as `lengthen` makes them; None is as many as it has.
        attention_dropout: share of attention's weights that goes in training; None is as in their
            config. On a GPU it takes about as long as attention itself.

    Returns:
        The encoder, on the model's device and in its dtype; `longspan.models.save` writes it.
    """
    if mechanism is not None and not callable(mechanism):
        raise TypeError(
            "from_bert: mechanism must be a function that makes one for the number of a layer, "
            f"such as lambda layer: Attention(pattern), got {describe(mechanism)}"
        )
    given = whole("from_bert", model, *KINDS)
    base = base_of("from_bert", given)
    config = base.config
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        raise ValueError(
            "from_bert: position_embedding_type must be absolute, got "
            f"{config.position_embedding_type!r}"
        )
    # RoBERTa's positions begin after the row of padding.
    first = 0 if config.model_type == "bert" else base.embeddings.padding_idx + 1
    if positions is not None:
        need_int("from_bert: positions", positions, at_least=1)
        had = base.embeddings.position_embeddings.num_embeddings - first
        if positions > had:
            # Theirs stays as it is, if it is not ours to change.
            base = deepcopy(base) if given is model else base
            lengthen(base, positions)
    if attention_dropout is None:
        attention_dropout = config.attention_probs_dropout_prob
    return encoder_from(
        "from_bert",
        base,
        (lambda layer: Attention()) if mechanism is None else mechanism,
        first=first,
        attention_dropout=attention_dropout,
    )
