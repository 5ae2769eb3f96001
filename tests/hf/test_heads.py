"""Heads of checkpoints: what the whole model says, by our encoder and our head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longspan.hf import from_bigbird, from_longformer, head_of
from longspan.models import Classification, MaskedTokens, SpanAnswers, Tagging

from .loaded import close, tokens
from .test_bigbird import bigbird
from .test_longformer import longformer

CASES = [
    ("LongformerForMaskedLM", MaskedTokens, {}),
    ("LongformerForMaskedLM", MaskedTokens, {"tie_word_embeddings": False}),
    ("LongformerForQuestionAnswering", SpanAnswers, {}),
    ("LongformerForTokenClassification", Tagging, {"num_labels": 3}),
    ("LongformerForSequenceClassification", Classification, {"num_labels": 3}),
    ("BigBirdForMaskedLM", MaskedTokens, {}),
    ("BigBirdForMaskedLM", MaskedTokens, {"rescale_embeddings": True}),
    ("BigBirdForPreTraining", MaskedTokens, {}),
    ("BigBirdForTokenClassification", Tagging, {"num_labels": 3}),
    ("BigBirdForSequenceClassification", Classification, {"num_labels": 3}),
]


def said(output: Any) -> Tensor:
    """Scores of whatever kind; begins and ends side by side."""
    for name in ("logits", "prediction_logits"):
        if hasattr(output, name):
            return getattr(output, name)
    return torch.stack([output.start_logits, output.end_logits])


@pytest.mark.parametrize(("kind", "head", "options"), CASES)
def test_what_the_whole_model_says(kind: str, head: type[nn.Module], options: Any) -> None:
    if kind.startswith("Longformer"):
        theirs, ids = longformer(kind, **options), tokens(2, 32)
        encoder = from_longformer(theirs)
        first = torch.zeros(2, 32, dtype=torch.bool)
        first[:, 0] = True
        wanted = said(theirs(ids, global_attention_mask=first.long()))
        y = encoder(ids, global_tokens=first)
    else:
        theirs, ids = bigbird(kind, **options), tokens(2, 64)
        encoder = from_bigbird(theirs, length=64)
        wanted, y = said(theirs(ids)), encoder(ids)
    ours = head_of(theirs, encoder)
    assert type(ours) is head and ours.training == theirs.training
    found = ours(y)
    close(torch.stack(found) if isinstance(found, tuple) else found, wanted)
    if isinstance(ours, MaskedTokens):
        assert (ours.embedding is encoder.tokens) == (not options)
        theirs.get_input_embeddings().weight.data.zero_()
        assert ours.embedding.weight.any()


def test_from_a_folder(tmp_path: Path) -> None:
    theirs, ids = longformer("LongformerForQuestionAnswering"), tokens(2, 32)
    theirs.save_pretrained(tmp_path)
    encoder = from_longformer(tmp_path)
    begin, end = head_of(tmp_path, encoder)(encoder(ids))
    wanted = theirs(ids, global_attention_mask=torch.zeros(2, 32, dtype=torch.long))
    close(begin, wanted.start_logits)
    close(end, wanted.end_logits)


def test_errors() -> None:
    theirs = longformer()
    encoder = from_longformer(theirs)
    with pytest.raises(ValueError, match=r"LongformerModel has no head.*ForMaskedLM"):
        head_of(theirs, encoder)
    for model in (
        bigbird("BigBirdForQuestionAnswering"),
        longformer("LongformerForMultipleChoice"),
    ):
        with pytest.raises(ValueError, match="has no head that is known"):
            head_of(model, encoder)
    with pytest.raises(TypeError, match="encoder must be what from_bert"):
        head_of(theirs, theirs)
    with pytest.raises(ValueError, match="num_labels must be 2, got 3"):
        head_of(longformer("LongformerForQuestionAnswering", num_labels=3), encoder)
