"""Heads of BERT, RoBERTa, Longformer and BigBird checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import describe
from ..models import Classification, Encoder, MaskedTokens, SpanAnswers, Tagging
from .bert import KINDS as BERTS
from .checkpoints import Source, activation_name, copy_into, whole

__all__ = ["head_of"]


def head_of(model: Source, encoder: Encoder) -> nn.Module:
    """The head of a BERT, RoBERTa, Longformer or BigBird of transformers, over what `encoder`
    gives.

        model = LongformerForQuestionAnswering.from_pretrained(name)
        encoder = from_longformer(model)
        begin, end = head_of(model, encoder)(encoder(tokens, global_tokens=question))

    `…ForMaskedLM` and `…ForPreTraining` have `MaskedTokens`, whose matrix is the encoder's
    embedding where theirs is; `…ForQuestionAnswering` has `SpanAnswers`, but for BigBird's;
    `…ForTokenClassification` has `Tagging`; `…ForSequenceClassification` has `Classification`,
    without their dropout of the first token's vector.

    Others have none here: `BigBirdForQuestionAnswering` (a block of two matrices before its
    scores), `…ForMultipleChoice`, and the second head of `…ForPreTraining`, of next sentences.

    Args:
        model: the model with its head, or the path or name of its checkpoint.
        encoder: what `from_bert`, `from_longformer` or `from_bigbird` made of it.
    """
    if not isinstance(encoder, Encoder):
        raise TypeError(
            "head_of: encoder must be what from_bert, from_longformer or from_bigbird made, got "
            f"{describe(encoder)}"
        )
    model = whole("head_of", model, *BERTS, "longformer", "big_bird")
    for kind in type(model).__mro__:
        if kind.__name__ in HEADS:
            made = HEADS[kind.__name__](model, encoder)
            like = encoder.tokens.weight
            return made.to(like.device, like.dtype).train(model.training)
    raise ValueError(
        f"head_of: {type(model).__name__} has no head that is known here; those of "
        f"{', '.join(sorted(HEADS))} are"
    )


def _masked_tokens(model: Any, encoder: Encoder) -> nn.Module:
    config = model.config
    if hasattr(model, "lm_head"):
        # It knows no other activation.
        head, act = model.lm_head, "gelu"
        dense, norm = head.dense, head.layer_norm
    else:
        head, act = model.cls.predictions, activation_name("head_of", config.hidden_act)
        dense, norm = head.transform.dense, head.transform.LayerNorm
    tied = head.decoder.weight is model.get_input_embeddings().weight
    embedding = encoder.tokens
    if not tied or getattr(config, "rescale_embeddings", False):
        embedding = nn.Embedding.from_pretrained(head.decoder.weight.detach().clone(), freeze=False)
    made = MaskedTokens(embedding, activation=act, norm_eps=config.layer_norm_eps)
    copy_into(made.before[0], dense)
    copy_into(made.before[2], norm)
    made.bias.data.copy_(head.decoder.bias.detach())
    return made


def _span_answers(model: Any, encoder: Encoder) -> nn.Module:
    if model.qa_outputs.out_features != 2:
        raise ValueError(
            "head_of: answers have a beginning and an end: num_labels must be 2, got "
            f"{model.qa_outputs.out_features}"
        )
    made = SpanAnswers(encoder.config.width)
    copy_into(made.scores, model.qa_outputs)
    return made


def _tagging(model: Any, encoder: Encoder) -> nn.Module:
    scores = model.classifier
    made = Tagging(encoder.config.width, scores.out_features, model.dropout.p)
    copy_into(made.scores, scores)
    return made


def _classification(model: Any, encoder: Encoder) -> nn.Module:
    head, config = model.classifier, model.config
    if config.model_type == "bert":
        # The matrix over the first token is the model's pooler, which knows no other activation.
        made = Classification(encoder.config.width, head.out_features, model.dropout.p)
        copy_into(made.pooled, model.bert.pooler.dense)
        copy_into(made.scores, head)
        return made
    # RoBERTa's and Longformer's is always tanh.
    act = "tanh"
    if config.model_type == "big_bird":
        act = activation_name("head_of", config.hidden_act)
    made = Classification(
        encoder.config.width, head.out_proj.out_features, head.dropout.p, activation=act
    )
    copy_into(made.pooled, head.dense)
    copy_into(made.scores, head.out_proj)
    return made


HEADS: dict[str, Callable[[Any, Encoder], nn.Module]] = {
    "BertForMaskedLM": _masked_tokens,
    "BertForPreTraining": _masked_tokens,
    "BertForQuestionAnswering": _span_answers,
    "BertForSequenceClassification": _classification,
    "BertForTokenClassification": _tagging,
    "BigBirdForMaskedLM": _masked_tokens,
    "BigBirdForPreTraining": _masked_tokens,
    "BigBirdForSequenceClassification": _classification,
    "BigBirdForTokenClassification": _tagging,
    "LongformerForMaskedLM": _masked_tokens,
    "LongformerForQuestionAnswering": _span_answers,
    "LongformerForSequenceClassification": _classification,
    "LongformerForTokenClassification": _tagging,
    "RobertaForMaskedLM": _masked_tokens,
    "RobertaForQuestionAnswering": _span_answers,
    "RobertaForSequenceClassification": _classification,
    "RobertaForTokenClassification": _tagging,
}
