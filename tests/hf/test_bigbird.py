"""BigBird checkpoints against transformers' own model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longspan.hf import from_bigbird
from longspan.models import Encoder, load, save
from longspan.nn import Attention, BigBird
from longspan.patterns import BlockWindow, Global
from longspan.weights import Bias

from .loaded import VOCAB, agree, close, real_tokens, tokens, uneven

transformers = pytest.importorskip("transformers")

BLOCK, DRAWN, N = 4, 2, 64


def bigbird(kind: str = "BigBirdModel", **options: Any) -> Any:
    """One that draws its random blocks: theirs does so in training only. Nothing is dropped."""
    config = transformers.BigBirdConfig(
        **{
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "max_position_embeddings": 80,
            "block_size": BLOCK,
            "num_random_blocks": DRAWN,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            **options,
        }
    )
    torch.manual_seed(1)
    return uneven(getattr(transformers, kind)(config)).train()


def compare(theirs: Any, length: int = N, **options: Any) -> None:
    ids, types = tokens(2, length), torch.randint(0, 2, (2, length))

    def loaded(model: Any) -> Encoder:
        return from_bigbird(model, length=length, **options)

    ours = loaded(theirs)
    agree(
        theirs,
        ours,
        loaded,
        torch.ones(2, length, dtype=torch.bool),
        lambda: theirs(ids, token_type_ids=types).last_hidden_state,
        lambda: ours(ids, types=types),
    )


@pytest.mark.parametrize(
    "options", [{}, {"num_attention_heads": 4, "num_random_blocks": 3}, {"hidden_act": "relu"}]
)
def test_as_their_model_in_training(options: dict[str, Any]) -> None:
    """With the random blocks that theirs draws, for each layer and head its own."""
    theirs = bigbird(**options)
    compare(theirs)
    assert theirs.attention_type == "block_sparse"


def test_at_the_papers_length() -> None:
    """The draw for 4096 tokens is another, and the one that a checkpoint of that length gets."""
    theirs = bigbird(max_position_embeddings=4096, block_size=64, num_hidden_layers=1)
    ids = tokens(1, 4096)
    with torch.no_grad():
        wanted = theirs(ids).last_hidden_state
        close(from_bigbird(theirs)(ids), wanted)
        other = from_bigbird(theirs, length=4032)(ids[:, :4032])
        assert float((other - wanted[:, :4032]).abs().max()) > 1e-2


def test_padding() -> None:
    """Their last global block is the last one of the batch, padded or not; with global tokens that
    come with the call, ours are the same.
    """
    theirs, ids, real = bigbird(), tokens(2, N), real_tokens(2, N, 10)

    def loaded(model: Any) -> Encoder:
        made = from_bigbird(model, length=N)
        tables = [own.table for own in made.mechanisms]
        again = Encoder(
            made.config,
            [BigBird(N, block=BLOCK, table=table, tokens="extra") for table in tables],
        )
        again.load_state_dict(made.state_dict())
        return again.train()

    ours = loaded(theirs)
    ends = torch.zeros(2, N, dtype=torch.bool)
    ends[:, :BLOCK] = ends[:, -BLOCK:] = True
    agree(
        theirs,
        ours,
        loaded,
        real,
        lambda: theirs(ids, attention_mask=real.long()).last_hidden_state,
        lambda: ours(ids, key_padding=real, global_tokens=ends & real),
    )


def test_padding_changes_nothing() -> None:
    """Ours looks at each sample's own end, so that a text is the same alone and in company."""
    ours, ids, real = from_bigbird(bigbird()), tokens(2, N), real_tokens(2, N, 10)
    with torch.no_grad():
        together = ours(ids, key_padding=real)
        close(together[1:, :-10], ours(ids[1:, :-10]))


def test_where_theirs_is_wrong_in_evaluation() -> None:
    """Every random block is block 0 then, which is global already: their softmax counts it
    1 + drawn times. To say the same, ours adds log(1 + drawn) to its scores, in the rows that draw.
    """
    theirs, ids = bigbird().eval(), tokens(2, N)
    with torch.no_grad():
        wanted = theirs(ids).last_hidden_state
    made = from_bigbird(theirs, length=N)
    counted = torch.zeros(1, 1, N, N)
    counted[:, :, BLOCK:-BLOCK, :BLOCK] = math.log(1 + DRAWN)
    pairs = BlockWindow(BLOCK, 1, 1) | Global(BLOCK) | Global(-BLOCK)

    def without_draws(weight: Bias | None) -> Tensor:
        again = Encoder(made.config, lambda layer: Attention(pairs, weight=weight)).eval()
        again.load_state_dict(made.state_dict(), strict=False)
        with torch.no_grad():
            return again(ids)

    close(without_draws(Bias(counted)), wanted)
    assert float((without_draws(None) - wanted).abs().max()) > 1e-2
    with torch.no_grad():
        assert float((theirs.train()(ids).last_hidden_state - wanted).abs().max()) > 1e-2


def test_where_theirs_is_wrong_at_1024_tokens() -> None:
    """They draw from 15 blocks, of which the last is global at this length: such a draw counts
    twice, as if log 2 were added to its scores.
    """
    theirs = bigbird(max_position_embeddings=4096, block_size=64, num_hidden_layers=1)
    ids = tokens(1, 1024)
    made = from_bigbird(theirs, length=1024)
    table = made.mechanisms[0].table
    assert isinstance(table, Tensor)
    # (heads, query blocks)
    twice = (table == 15).any(-1)
    assert twice.any()
    counted = torch.zeros(1, 2, 16, 64, 16, 64)
    counted[0, :, :, :, 15][twice] = math.log(2)
    pairs = BigBird(1024, table=table).pattern()
    weight = Bias(counted.reshape(1, 2, 1024, 1024))
    again = Encoder(made.config, [Attention(pairs, weight=weight)])
    again.load_state_dict(made.state_dict(), strict=False)
    with torch.no_grad():
        wanted = theirs(ids).last_hidden_state
        close(again(ids), wanted)
        assert float((made(ids) - wanted).abs().max()) > 1e-2


def test_full_attention() -> None:
    """Of a checkpoint that says so, and when asked for."""
    compare(bigbird(attention_type="original_full"))
    made = from_bigbird(bigbird(), attention="original_full")
    assert all(type(own) is Attention for own in made.mechanisms)


def test_short_texts() -> None:
    """Theirs turns to full attention for them, and stays there; its checkpoint is a sparse one."""
    theirs, short = bigbird(), (5 + 2 * DRAWN) * BLOCK
    compare(theirs, short)
    assert theirs.attention_type == "original_full"
    assert all(type(own) is Attention for own in from_bigbird(theirs, length=short).mechanisms)
    assert all(type(own) is BigBird for own in from_bigbird(theirs).mechanisms)
    compare(bigbird(), short + 1 * BLOCK)


def test_a_scaled_embedding_and_no_biases() -> None:
    theirs, ids = bigbird(rescale_embeddings=True, use_bias=False), tokens(2, N)
    with torch.no_grad():
        close(from_bigbird(theirs, length=N)(ids), theirs(ids).last_hidden_state)


@pytest.mark.parametrize("kind", ["BigBirdForQuestionAnswering", "BigBirdForCausalLM"])
def test_a_model_inside_another(kind: str) -> None:
    """A head that has no place here is left out, and a causal head over an encoder too."""
    theirs, ids = bigbird(kind), tokens(2, N)
    with torch.no_grad():
        close(from_bigbird(theirs, length=N)(ids), theirs.bert(ids).last_hidden_state)


def test_what_is_made(tmp_path: Path) -> None:
    theirs = bigbird(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3).eval()
    np.random.seed(3)
    expected = np.random.RandomState(3).rand()
    ours = from_bigbird(theirs)
    assert np.random.rand() == expected
    assert (ours.config.dropout, ours.config.attention_dropout) == (0.2, 0.0)
    assert ours.config.activation == "gelu_tanh" and ours.config.length == 80
    first, second = (own.table for own in ours.mechanisms)
    assert isinstance(first, Tensor) and isinstance(second, Tensor)
    assert first.shape == (2, 20, DRAWN)
    assert not torch.equal(first[0], first[1]) and not torch.equal(first, second)
    assert not ours.training
    ids = tokens(2, N)
    save(ours, tmp_path / "ours")
    assert torch.equal(load(tmp_path / "ours")(ids), ours(ids))
    theirs.save_pretrained(tmp_path / "theirs")
    assert torch.equal(from_bigbird(tmp_path / "theirs")(ids), ours(ids))
    full = from_bigbird(theirs, attention="original_full")
    assert full.config.attention_dropout == 0.3


def test_errors() -> None:
    with pytest.raises(
        ValueError, match=r"length must be at most 80.*got 81; longspan.hf.lengthen"
    ):
        from_bigbird(bigbird(), length=81)
    with pytest.raises(ValueError, match=r"attention must be one of block_sparse.*sparse"):
        from_bigbird(bigbird(), attention="sparse")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"hidden_act must be one of gelu.*silu"):
        from_bigbird(bigbird(hidden_act="silu"))
    with pytest.raises(ValueError, match=r"BigBirdForCausalLM is a decoder"):
        from_bigbird(bigbird("BigBirdForCausalLM", is_decoder=True))
    with pytest.raises(TypeError, match="from_pretrained"):
        from_bigbird(3)
