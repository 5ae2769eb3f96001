"""BERT and RoBERTa checkpoints against transformers' own models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longspan.hf import from_bert, head_of, lengthen
from longspan.models import Classification, MaskedTokens, SpanAnswers, Tagging, load, save
from longspan.nn import Attention, LearnedWindow, SlidingWindow
from longspan.patterns import Full

from .loaded import VOCAB, agree, close, real_tokens, tokens, uneven

transformers = pytest.importorskip("transformers")

N = 24
CONFIGS = {"Bert": "BertConfig", "Roberta": "RobertaConfig"}


def bert(kind: str = "BertModel", **options: Any) -> Any:
    """RoBERTa's positions begin after its token of padding, 1."""
    family = "Roberta" if kind.startswith("Roberta") else "Bert"
    config = getattr(transformers, CONFIGS[family])(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=N + 2,
        type_vocab_size=2,
        **options,
    )
    torch.manual_seed(1)
    return uneven(getattr(transformers, kind)(config)).eval()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel"])
def test_as_their_model(kind: str, padded: bool) -> None:
    """Vectors and gradients with full attention, to 1e-5."""
    theirs = bert(kind)
    ours = from_bert(theirs, lambda layer: Attention(Full()))
    ids, real = tokens(2, N), real_tokens(2, N, 9 if padded else 0)
    ids = ids.masked_fill(~real, theirs.config.pad_token_id)
    kinds = torch.randint(0, 2, (2, N))
    agree(
        theirs,
        ours,
        from_bert,
        real,
        lambda: theirs(ids, attention_mask=real.long(), token_type_ids=kinds).last_hidden_state,
        lambda: ours(ids, key_padding=real if padded else None, types=kinds),
        atol=1e-5,
    )


@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel"])
def test_more_positions(kind: str) -> None:
    """As `lengthen` copies them; theirs stays as it was."""
    theirs = bert(kind)
    had = theirs.embeddings.position_embeddings.weight.clone()
    ours = from_bert(theirs, positions=60)
    assert torch.equal(theirs.embeddings.position_embeddings.weight, had)
    assert ours.config.length == 60
    ids = tokens(2, 60)
    lengthen(theirs, 60)
    with torch.no_grad():
        close(ours(ids), theirs(ids).last_hidden_state)
    assert from_bert(theirs, positions=5).config.length == 60
    assert from_bert(theirs, attention_dropout=0.25).config.attention_dropout == 0.25


def test_mechanisms() -> None:
    """Their own weights start as they are made; projections of global tokens as the layer's."""
    theirs = bert()
    learned = from_bert(theirs, lambda layer: LearnedWindow(16, 2, mean_reach=4, max_reach=9))
    for own in learned.mechanisms:
        assert isinstance(own, LearnedWindow)
        assert not own.U_d.any() and own.W_p.any() and own.factor.dtype == torch.float64
    sliding = from_bert(theirs, lambda layer: SlidingWindow(16, 2, left=40))
    for block in sliding.blocks:
        assert torch.equal(block.attention.mechanism.q_global.weight, block.attention.q_proj.weight)
        assert torch.equal(
            block.attention.mechanism.v_global.bias,
            theirs.encoder.layer[0].attention.self.value.bias,
        ) == (block is sliding.blocks[0])
    # A window over everything, and global tokens with the same projections, are full attention.
    ids, chosen = tokens(2, N), torch.zeros(2, N, dtype=torch.bool)
    chosen[:, 0] = True
    with torch.no_grad():
        close(sliding(ids, global_tokens=chosen), theirs(ids).last_hidden_state)


def test_from_a_folder_and_into_one(tmp_path: Path) -> None:
    theirs = bert("BertForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    ids = tokens(2, N)
    ours = from_bert(tmp_path / "theirs", positions=40)
    with torch.no_grad():
        close(ours(ids), theirs.bert(ids).last_hidden_state)
    save(ours, tmp_path / "ours")
    assert torch.equal(load(tmp_path / "ours")(ids), ours.eval()(ids))


HEADS = [
    ("ForMaskedLM", MaskedTokens, {}),
    ("ForMaskedLM", MaskedTokens, {"tie_word_embeddings": False}),
    ("ForQuestionAnswering", SpanAnswers, {}),
    ("ForTokenClassification", Tagging, {"num_labels": 3}),
    ("ForSequenceClassification", Classification, {"num_labels": 3}),
]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize(("kind", "head", "options"), HEADS)
def test_heads(family: str, kind: str, head: type[nn.Module], options: Any) -> None:
    theirs, ids = bert(family + kind, **options), tokens(2, N)
    encoder = from_bert(theirs)
    ours = head_of(theirs, encoder)
    assert type(ours) is head
    output, found = theirs(ids), ours(encoder(ids))
    wanted: Tensor = (
        torch.stack([output.start_logits, output.end_logits])
        if head is SpanAnswers
        else output.logits
    )
    close(torch.stack(found) if isinstance(found, tuple) else found, wanted)


def test_errors() -> None:
    with pytest.raises(TypeError, match="a function that makes one for the number of a layer"):
        from_bert(bert(), Attention(Full()).settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be of model_type bert or roberta"):
        from_bert(transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_head=2, n_layer=1)))
    with pytest.raises(ValueError, match="positions must be at least 1"):
        from_bert(bert(), positions=0)
    decoder = bert()
    decoder.config.is_decoder = True
    with pytest.raises(ValueError, match=r"is a decoder .*is_decoder=False"):
        from_bert(decoder)
