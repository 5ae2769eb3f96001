"""Longformer checkpoints against transformers' own model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.hf import from_longformer, use
from longspan.models import load, save
from longspan.nn import SlidingWindow
from longspan.patterns import Full

from .loaded import VOCAB, agree, close, real_tokens, tokens, uneven

transformers = pytest.importorskip("transformers")

N = 32


def longformer(kind: str = "LongformerModel", **options: Any) -> Any:
    """Windows of 2 and of 4 to each side."""
    config = transformers.LongformerConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=N + 12,
        attention_window=[4, 8],
        **options,
    )
    torch.manual_seed(1)
    return uneven(getattr(transformers, kind)(config)).eval()


def some_global() -> Tensor:
    """Three of the first sample, one of the second."""
    found = torch.zeros(2, N, dtype=torch.bool)
    found[0, [0, 7, 30]] = found[1, 0] = True
    return found


def compare(theirs: Any, *, with_global: bool, padded: bool, types: bool = False) -> None:
    ours = from_longformer(theirs)
    ids = tokens(2, N)
    real = real_tokens(2, N, 9 if padded else 0)
    ids = ids.masked_fill(~real, theirs.config.pad_token_id)
    kinds = torch.randint(0, 2, (2, N)) if types else None
    chosen = some_global() if with_global else None
    agree(
        theirs,
        ours,
        from_longformer,
        real,
        lambda: (
            theirs(
                ids,
                attention_mask=real.long(),
                global_attention_mask=None if chosen is None else chosen.long(),
                token_type_ids=kinds,
            ).last_hidden_state
        ),
        lambda: ours(ids, key_padding=real if padded else None, global_tokens=chosen, types=kinds),
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("with_global", [False, True])
def test_as_their_model(with_global: bool, padded: bool) -> None:
    """Rows of padded tokens they set to 0, and we do not: real tokens are compared."""
    compare(longformer(), with_global=with_global, padded=padded)


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_types_and_other_activations(activation: str) -> None:
    made = longformer(hidden_act=activation, layer_norm_eps=1e-3)
    compare(made, with_global=True, padded=False, types=True)


def test_lengths_that_they_pad() -> None:
    """Theirs are padded to a multiple of the window, ours are as they are."""
    theirs, ids = longformer(), tokens(2, 21)
    with torch.no_grad():
        close(from_longformer(theirs)(ids), theirs(ids).last_hidden_state)


def test_what_is_made() -> None:
    theirs = longformer(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3).double()
    ours = from_longformer(theirs.train())
    assert ours.config.length == N + 10 and ours.config.types == 2
    assert (ours.config.dropout, ours.config.attention_dropout) == (0.2, 0.3)
    assert ours.tokens.weight.dtype == torch.float64 and ours.training
    for layer, left in enumerate((2, 4)):
        own = ours.mechanisms[layer]
        assert isinstance(own, SlidingWindow)
        assert (own.window.left, own.window.right) == (left, left)  # type: ignore[attr-defined]
    before = ours.tokens.weight.detach().clone()
    theirs.embeddings.word_embeddings.weight.data.zero_()
    assert torch.equal(ours.tokens.weight, before)


@pytest.mark.parametrize("kind", ["LongformerModel", "LongformerForMaskedLM"])
def test_from_a_folder_and_into_one(kind: str, tmp_path: Path) -> None:
    theirs = longformer(kind)
    theirs.save_pretrained(tmp_path / "theirs")
    ids, chosen = tokens(2, N), some_global()
    wanted = from_longformer(theirs)(ids, global_tokens=chosen)
    for path in (tmp_path / "theirs", str(tmp_path / "theirs")):
        ours = from_longformer(path)
        assert torch.equal(ours(ids, global_tokens=chosen), wanted)
    save(ours, tmp_path / "ours")
    assert torch.equal(load(tmp_path / "ours")(ids, global_tokens=chosen), wanted)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="from_pretrained"):
        from_longformer(torch.nn.Linear(2, 2))
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=9,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=8,
        )
    )
    with pytest.raises(ValueError, match=r"BertModel must be of model_type longformer, got 'bert'"):
        from_longformer(bert)
    with pytest.raises(ValueError, match=r"use: no layer of LongformerModel.*from_longformer"):
        use(longformer(), Full())
    bert.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"must be of model_type longformer, got 'bert'"):
        from_longformer(tmp_path)
    with pytest.raises(ValueError, match=r"hidden_act must be one of gelu.*silu"):
        from_longformer(longformer(hidden_act="silu"))
    decoder = longformer()
    decoder.config.is_decoder = True
    with pytest.raises(ValueError, match=r"is a decoder .*is_decoder=False"):
        from_longformer(decoder)
