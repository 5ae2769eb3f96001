"""How far a pretrained model looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.hf.profiling import Profile, profile

from .tiny import model, tokens

transformers = pytest.importorskip("transformers")


def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    return transformers.BertModel(config)


def test_mass_is_that_of_the_models_own_attention() -> None:
    model = bert().eval()
    tokens = torch.randint(0, 50, (2, 12))
    real = torch.ones(2, 12, dtype=torch.int64)
    real[1, 9:] = 0
    implementation = model.config._attn_implementation
    found = profile(model, [{"input_ids": tokens, "attention_mask": real}])
    assert model.config._attn_implementation == implementation
    assert found.tokens == 21
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(tokens, attention_mask=real, output_attentions=True).attentions
    for layer, own in enumerate(weights):
        for head in range(4):
            expected = torch.zeros(12, dtype=torch.float64)
            for b in range(2):
                for i in range(int(real[b].sum())):
                    for j in range(12):
                        expected[abs(i - j)] += own[b, head, i, j].double()
            torch.testing.assert_close(found.mass[layer, head], expected / expected.sum())


def test_lengths_may_differ() -> None:
    found = profile(bert(), [torch.randint(0, 50, (1, 9)), torch.randint(0, 50, (1, 20))])
    assert found.mass.shape == (2, 4, 20)
    torch.testing.assert_close(found.mass.sum(-1), torch.ones(2, 4, dtype=torch.float64))


def test_nothing_to_look_at() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        profile(bert(), [])


def made() -> Profile:
    near = torch.tensor([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    far = torch.tensor([0.1, 0.0, 0.0, 0.0, 0.0, 0.9])
    return Profile(torch.stack([near, far]).double()[None], 100)


def test_reach() -> None:
    assert made().reach(0.5).tolist() == [[0, 5]]
    assert made().reach(0.9).tolist() == [[1, 5]]
    assert made().reach(1.0).tolist() == [[2, 5]]
    assert made().covered(1)[0].tolist() == pytest.approx([0.9, 0.1])


def test_windows_lose_the_least() -> None:
    found = made()
    # Five tokens for 0.9 are better than two for 0.4.
    assert found.windows(0.5).tolist() == [[1, 0]]
    assert found.windows(3.5).tolist() == [[2, 5]]
    assert int(found.windows(2.0).sum()) == 4
    with pytest.raises(ValueError, match="from 0 to 5"):
        found.windows(6)


def test_windows_against_every_choice() -> None:
    torch.manual_seed(1)
    mass = torch.rand(1, 3, 6, dtype=torch.float64).sort(-1, descending=True).values
    found = Profile(mass / mass.sum(-1, keepdim=True), 1)
    chosen = found.windows(2)
    best = max(
        float(found.covered(torch.tensor([[a, b, 6 - a - b]])).sum())
        for a in range(6)
        for b in range(6)
        if 0 <= 6 - a - b <= 5
    )
    assert float(found.covered(chosen).sum()) == pytest.approx(best)


def test_picture_and_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made().save_picture(tmp_path / "profile.svg")
    assert (tmp_path / "profile.svg").stat().st_size > 1000
    assert made()._repr_svg_() == (tmp_path / "profile.svg").read_text()
    assert "layer 0: 0/1/2  5/5/5" in str(made())
    assert repr(made()) == "Profile(layers=1, heads=2, distances=6, tokens=100)"


def test_texts_that_are_strings() -> None:
    made = model("bert")

    def tokenizer(text: str, return_tensors: str) -> dict[str, torch.Tensor]:
        return {"input_ids": tokens()[: len(text) // 2]}

    found = profile(made, ["four"], tokenizer=tokenizer)
    assert torch.equal(found.mass, profile(made, [tokens()]).mass)
    with pytest.raises(ValueError, match="profile: batches that are strings need tokenizer="):
        profile(made, ["text"])
    with pytest.raises(TypeError, match=r"profile: batches must have input_ids"):
        profile(made, [{"text": tokens()}])


@pytest.mark.parametrize("broken", [False, True])
def test_every_part_keeps_its_mode(broken: bool) -> None:
    made = model("bert").train()
    made.encoder.layer[0].eval()
    made.embeddings.dropout.eval()
    modes = [part.training for part in made.modules()]
    if broken:
        with pytest.raises(TypeError, match="input_ids"):
            profile(made, [{"text": tokens()}])
    else:
        profile(made, [tokens()])
    assert [part.training for part in made.modules()] == modes
