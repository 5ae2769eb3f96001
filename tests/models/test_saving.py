"""Models in files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longspan.models import Config, Encoder, EncoderDecoder, LanguageModel, Translator, load, save
from longspan.nn import Attention, BigBird, LearnedWindow, SlidingWindow
from longspan.patterns import Causal, Window
from longspan.weights import Alibi, Bias, DistanceBias

pytest.importorskip("safetensors")

SIZES: dict[str, Any] = {"vocab": 9, "width": 16, "heads": 2, "layers": 2, "length": 40}


def encoder() -> Encoder:
    made = [
        SlidingWindow(16, 2, left=[3, 5], dilation=[1, 2]),
        LearnedWindow(16, 2, mean_reach=3, max_reach=6, budget="pairs"),
        BigBird(40, block=4),
        Attention(Window(2, 2), weight=DistanceBias(nn.Parameter(torch.randn(2, 9)), right=4)),
    ]
    return Encoder(Config(**{**SIZES, "layers": 4}), made)


def language_model() -> LanguageModel:
    slopes = torch.tensor([0.5, 0.25])
    return LanguageModel(
        Config(**SIZES, positions="rotary"),
        lambda layer: Attention(Causal() & Window(4, 0), weight=Alibi(slopes)),
    )


def translator() -> Translator:
    return Translator(
        Config(**SIZES, norm="post"),
        lambda layer: Attention(),
        lambda layer: LearnedWindow(16, 2, mean_reach=3, max_reach=6, causal=True, soft=True),
    )


@pytest.mark.parametrize("make", [encoder, language_model, translator])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_keep_their_dtype(make: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = make().to(dtype)
    save(model, tmp_path / "run")
    again = load(tmp_path / "run")
    wanted = {name: own.dtype for name, own in model.state_dict().items()}
    assert {name: own.dtype for name, own in again.state_dict().items()} == wanted
    for name, own in again.state_dict().items():
        assert torch.equal(own, model.state_dict()[name])


@pytest.mark.parametrize("make", [encoder, language_model, translator])
def test_the_same_model_comes_back(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    save(model, tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again) is type(model)
    tokens = torch.randint(0, 9, (2, 23))
    inputs = (tokens, tokens[:, :7]) if isinstance(model, Translator) else (tokens,)
    assert torch.equal(again(*inputs), model(*inputs))
    assert sorted(again.state_dict()) == sorted(model.state_dict())
    assert [p.requires_grad for p in again.parameters()] == [True] * len(list(model.parameters()))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]


def test_files_from_before_a_config_knew_more(tmp_path: Path) -> None:
    """A config without the newer choices is what they are by default."""
    model = encoder().eval()
    save(model, tmp_path)
    path = tmp_path / "model.json"
    description = json.loads(path.read_text())
    for name in ("norm_eps", "embedding_norm", "types", "activation", "attention_dropout"):
        del description["config"][name]
    path.write_text(json.dumps(description))
    tokens = torch.randint(0, 9, (2, 23))
    assert torch.equal(load(tmp_path)(tokens), model(tokens))


def test_an_encoder_like_bert_comes_back(tmp_path: Path) -> None:
    own = Config(**SIZES, norm="post", norm_eps=1e-3, embedding_norm=True, types=3)
    model = Encoder(own, lambda layer: BigBird(40, block=4, table=torch.randint(0, 9, (2, 10, 1))))
    save(model.eval(), tmp_path)
    tokens, types = torch.randint(0, 9, (2, 23)), torch.randint(0, 3, (2, 23))
    again = load(tmp_path)
    assert torch.equal(again(tokens, types=types), model(tokens, types=types))
    assert again.config == own


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    save(language_model(), tmp_path)
    again = load(tmp_path)
    assert isinstance(again, LanguageModel)
    assert again.head.embedding.weight is again.decoder.tokens.weight


def test_a_parameter_of_all_layers_stays_one(tmp_path: Path) -> None:
    slopes = nn.Parameter(torch.tensor([0.5, 0.25]))
    model = LanguageModel(
        Config(**SIZES), lambda layer: Attention(Causal(), weight=Alibi(slopes))
    ).eval()
    save(model, tmp_path)
    again = load(tmp_path)
    assert isinstance(again, LanguageModel)
    assert len(list(again.parameters())) == len(list(model.parameters()))
    first, second = again.decoder.mechanisms
    assert isinstance(first.weight_slopes, nn.Parameter)
    assert first.weight_slopes is second.weight_slopes
    with torch.no_grad():
        slopes.mul_(3)
        first.weight_slopes.mul_(3)
    tokens = torch.randint(0, 9, (2, 23))
    assert torch.equal(again(tokens), model(tokens))


def test_random_tables_are_stored(tmp_path: Path) -> None:
    model = encoder()
    save(model, tmp_path)
    table = json.loads((tmp_path / "model.json").read_text())["mechanisms"][0][2]["table"]
    assert table == model.mechanisms[2].table.tolist()


def test_a_failed_save_leaves_the_old_model(tmp_path: Path) -> None:
    save(language_model(), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    broken = language_model()
    broken.decoder.blocks[0].attention.mechanism = Own()
    with pytest.raises(ValueError, match="Own is not one of"):
        save(broken, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


class Own(Attention):
    pass


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is it a saved model"):
        load(tmp_path)
    with pytest.raises(TypeError, match="must be one of"):
        save(nn.Linear(2, 2), tmp_path)
    save(language_model(), tmp_path)
    text = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**text, "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        load(tmp_path)
    (tmp_path / "model.json").write_text(
        json.dumps({**text, "config": {**text["config"], "layers": 1}})
    )
    with pytest.raises(ValueError, match="for each of 1 layers"):
        load(tmp_path)


def test_encoder_and_decoder_alone(tmp_path: Path) -> None:
    model = EncoderDecoder(
        Config(**SIZES), lambda layer: Attention(), lambda layer: Attention(Causal())
    ).eval()
    save(model, tmp_path)
    tokens = torch.randint(0, 9, (1, 11))
    assert torch.equal(load(tmp_path)(tokens, tokens), model(tokens, tokens))


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_others_may_read_what_they_may_elsewhere(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        save(encoder(), tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o666 & ~mask}


def test_views_of_one_tensor(tmp_path: Path) -> None:
    """A square one and its transpose begin at the same place and have the same shape."""
    scores, slopes = torch.rand(1, 1, 20, 20), torch.rand(3)
    model = Encoder(
        Config(**SIZES),
        lambda layer: Attention(
            weight=[Bias(scores.mT if layer else scores), Alibi(slopes[layer : layer + 2])]
        ),
    ).eval()
    save(model, tmp_path)
    tokens = torch.randint(9, (1, 20))
    assert torch.equal(load(tmp_path)(tokens), model(tokens))
