"""More positions, by copying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.hf import lengthen, use
from longspan.patterns import Window

from .tiny import hidden, model, tokens, transformers

LEARNED = ("bert", "roberta", "distilbert", "mpnet", "gpt2")


def table(made: Any) -> torch.Tensor:
    owner = made.wpe if hasattr(made, "wpe") else made.embeddings.position_embeddings
    assert owner.num_embeddings == owner.weight.shape[0]
    return owner.weight


@pytest.mark.parametrize("kind", LEARNED)
def test_first_positions_stay_and_the_rest_are_copies(kind: str) -> None:
    made, ids = model(kind), tokens(length=48)
    old, before = table(made).detach().clone(), hidden(made, ids)
    others = {k: v.clone() for k, v in made.state_dict().items() if v is not table(made)}
    lengthen(made, 110)
    first = 2 if kind in ("roberta", "mpnet") else 0
    assert made.config.max_position_embeddings == 110 + first
    new = table(made)
    assert new.shape == (110 + first, 32) and new.requires_grad
    assert torch.equal(new[: len(old)], old)
    for i in range(110):
        assert torch.equal(new[first + i], old[first + i % 48])
    assert torch.equal(hidden(made, ids), before)
    now = made.state_dict()
    same = [name for name in others if now[name].shape == others[name].shape]
    assert len(same) == len(others) - 1
    assert all(torch.equal(now[name], others[name]) for name in same)


@pytest.mark.parametrize("kind", LEARNED)
def test_longer_texts_run_and_the_model_is_saved(kind: str, tmp_path: Path) -> None:
    made, ids = model(kind), tokens(length=110)
    with pytest.raises((IndexError, RuntimeError)):
        hidden(made, ids)
    lengthen(made, 110)
    found = hidden(made, ids)
    assert found.shape == (2, 110, 32)
    found.sum().backward()
    assert table(made).grad is not None
    made.save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert again.config.max_position_embeddings == made.config.max_position_embeddings
    assert torch.equal(hidden(again, ids), found)
    use(again, Window(8, 0))
    assert hidden(again, ids).shape == found.shape


def test_a_model_inside_another() -> None:
    inside = transformers.BertForMaskedLM(model("bert").config)
    lengthen(inside, 64)
    assert inside(input_ids=tokens(length=64)).logits.shape == (2, 64, 40)
    assert inside.bert.embeddings.token_type_ids.shape == (1, 64)
    assert "bert.embeddings.position_ids" not in inside.state_dict()
    lengthen(inside, 64)
    assert inside.config.max_position_embeddings == 64


def test_errors() -> None:
    with pytest.raises(ValueError, match="rope_parameters"):
        lengthen(model("llama"), 100)
    with pytest.raises(ValueError, match="48 positions already"):
        lengthen(model("roberta"), 47)
    with pytest.raises(TypeError, match="positions"):
        lengthen(model("bert"), 1.5)  # type: ignore[arg-type]
