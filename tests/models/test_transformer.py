"""The transformer: what it must never see, and that a step at a time is the same as all at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.models import Config, Decoder, Encoder, EncoderDecoder, LanguageModel
from longspan.models.transformer import Mechanisms
from longspan.nn import Attention, LearnedWindow, MultiheadAttention, SlidingWindow
from longspan.patterns import Causal, Full, Global, Window
from longspan.weights import Bell, Ramp

WIDTH, HEADS = 16, 2

MECHANISMS: dict[str, Mechanisms] = {
    "full": lambda layer: Attention(Causal()),
    "window": lambda layer: Attention(Window(3 + layer, 0)),
    "sliding": lambda layer: SlidingWindow(WIDTH, HEADS, left=4, causal=True),
    "learned": lambda layer: LearnedWindow(WIDTH, HEADS, mean_reach=3, max_reach=6, causal=True),
    "ramp": lambda layer: Attention(Causal(), weight=Ramp(2.0 + layer, 2.0)),
}


def config(**options: Any) -> Config:
    own = {"vocab": 11, "width": WIDTH, "heads": HEADS, "layers": 2, "length": 64}
    return Config(**{**own, **options})


def tokens(batch: int = 2, n: int = 20) -> Tensor:
    return torch.randint(0, 11, (batch, n), generator=torch.Generator().manual_seed(3))


def made(kind: type, mechanisms: Mechanisms, **options: Any) -> Any:
    torch.manual_seed(0)
    model = kind(config(**options), mechanisms).eval()
    for part in model.modules():
        if isinstance(part, LearnedWindow):
            torch.nn.init.normal_(part.U_d, std=2.0)
    return model


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_and_company_change_nothing(positions: Any, norm: Any) -> None:
    model = made(Encoder, lambda layer: Attention(Window(4, 4)), positions=positions, norm=norm)
    x = tokens()
    real = torch.ones(2, 26, dtype=torch.bool)
    real[:, 20:] = False
    longer = torch.cat([x, torch.full((2, 6), 7)], 1)
    alone = model(x)
    torch.testing.assert_close(model(longer, key_padding=real)[:, :20], alone)
    torch.testing.assert_close(model(x[:1]), alone[:1])


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_a_step_at_a_time(name: str, positions: Any) -> None:
    model = made(Decoder, MECHANISMS[name], positions=positions)
    x = tokens()
    whole, cache = model(x), model.new_cache()
    parts = [model(x[:, :7], cache=cache)]
    parts += [model(x[:, i : i + 1], cache=cache) for i in range(7, 20)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)
    for mechanism, layer in zip(model.mechanisms, cache.layers, strict=True):
        kept = layer.keys.shape[2]
        assert kept == (20 if mechanism.remembers is None else mechanism.remembers - 1)


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_looks_ahead(name: str) -> None:
    model = made(Decoder, MECHANISMS[name])
    x = tokens()
    other = x.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 11
    assert torch.equal(model(x)[:, :12], model(other)[:, :12])


@pytest.mark.parametrize("name", MECHANISMS)
def test_left_padding(name: str) -> None:
    model = made(LanguageModel, MECHANISMS[name], positions="rotary")
    x = tokens(1, 9)
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.int64), x], 1)
    real = torch.tensor([[False] * 4 + [True] * 9])
    plain = model.generate(x, 6)
    torch.testing.assert_close(model.generate(padded, 6, key_padding=real)[:, 4:], plain)
    torch.testing.assert_close(model(padded, key_padding=real)[:, 4:], model(x))


def test_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(
        config(), lambda layer: Attention(Full()), lambda layer: Attention(Causal())
    ).eval()
    source, target = tokens(), tokens(2, 8)
    found = model(source, target)
    assert found.shape == (2, 8, WIDTH)
    changed = source.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 11
    assert not torch.allclose(model(changed, target), found)
    real = torch.ones(2, 20, dtype=torch.bool)
    real[:, 3] = False
    torch.testing.assert_close(
        model(changed, target, key_padding=real), model(source, target, key_padding=real)
    )


def test_gradients_reach_every_parameter() -> None:
    model = made(LanguageModel, MECHANISMS["learned"]).train()
    model(tokens()).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name


def test_decoders_are_causal() -> None:
    with pytest.raises(ValueError, match="must be causal, that of layer 0"):
        Decoder(config(), lambda layer: Attention(Window(4, 4)))


def test_a_decoder_has_a_memory_or_not() -> None:
    """Without one its cross-attention would look at the text itself, and ahead."""
    with pytest.raises(ValueError, match="memory is missing"):
        Decoder(config(), Causal(), cross=True)(tokens())
    with pytest.raises(ValueError, match="make the decoder with cross=True"):
        Decoder(config(), Causal())(tokens(), memory=torch.randn(2, 3, WIDTH))


def test_a_cache_that_is_full_stays_as_it_is() -> None:
    model = Decoder(config(), Causal()).eval()
    x, cache = tokens(1, 64), model.new_cache()
    model(x[:, :-2], cache=cache)
    with pytest.raises(ValueError, match="at most"):
        model(x[:, :3], cache=cache)
    found = model(x[:, -2:], cache=cache)
    torch.testing.assert_close(found, model(x)[:, -2:], atol=1e-5, rtol=1e-5)


def test_exempt_pairs_keep_their_places() -> None:
    """A cache that was cut would have another first token."""
    weight = Bell(2.0, threshold=0.5, exempt=Global(1))
    pattern = Causal() & Window(4, 0)
    model = Decoder(config(), lambda layer: Attention(pattern, weight=weight)).eval()
    for own in model.parameters():
        torch.nn.init.normal_(own, std=0.3)
    x, cache = tokens(1), model.new_cache()
    steps = [model(x[:, place : place + 1], cache=cache) for place in range(20)]
    torch.testing.assert_close(torch.cat(steps, 1), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (1, 2, 5)])
@pytest.mark.parametrize("kind", [Encoder, Decoder, LanguageModel])
def test_tokens_of_another_shape(kind: Any, shape: tuple[int, ...]) -> None:
    model = kind(config(), Causal())
    with pytest.raises(ValueError, match=r"tokens must be \(batch, length\), got an int64 tensor"):
        model(torch.zeros(shape, dtype=torch.int64))


def test_one_mechanism_a_layer() -> None:
    with pytest.raises(ValueError, match="for each of 2 layers, got 1"):
        Encoder(config(), [Attention()])
    shared = Attention()
    with pytest.raises(ValueError, match="new one for every layer"):
        Encoder(config(), [shared, shared])


def test_learned_positions_end() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        made(Encoder, lambda layer: Attention())(tokens(1, 65))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"width": 15}, "multiple of heads"),
        ({"positions": "none"}, "positions must be one of"),
        ({"norm": "rms"}, "norm must be one of"),
        ({"dropout": 1.0}, "dropout must be"),
    ],
)
def test_config_errors(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        config(**options)


def test_an_encoder_like_bert() -> None:
    """Post-norm, with types, a norm of the embedding, its own activation and its own ε: the same
    as written out.
    """
    model = made(
        Encoder,
        lambda layer: Attention(),
        layers=1,
        norm="post",
        norm_eps=0.1,
        embedding_norm=True,
        types=2,
        activation="gelu_tanh",
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    x, types = tokens(), torch.randint(0, 2, (2, 20))
    block = model.blocks[0]

    def normed(y: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
        away = y - y.mean(-1, keepdim=True)
        return away / (away.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight + norm.bias

    y = model.tokens.weight[x] + model.positions.weight[:20] + model.types.weight[types]
    y = normed(y, model.embedding_norm)
    y = normed(y + block.attention(y), block.attention_norm)
    inner = block.mlp[0](y)
    inner = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    y = normed(y + block.mlp[2](inner), block.mlp_norm)
    torch.testing.assert_close(model(x, types=types), y, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model(x), model(x, types=torch.zeros_like(x)))


def test_types_that_are_not_there() -> None:
    with pytest.raises(ValueError, match=r"Config\(types=2\)"):
        made(Encoder, lambda layer: Attention())(tokens(), types=tokens())
    with pytest.raises(ValueError, match="a decoder's config has 0, got 2"):
        Decoder(config(types=2), MECHANISMS["full"])


def test_attention_drops_its_own_share() -> None:
    model = Encoder(config(dropout=0.5, attention_dropout=0.25), lambda layer: Attention())
    assert {block.attention.dropout for block in model.blocks} == {0.25}
    model = Encoder(config(dropout=0.5), lambda layer: Attention())
    assert {block.attention.dropout for block in model.blocks} == {0.5}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"activation": "silu"}, ValueError, "activation must be one of gelu.*silu"),
        ({"norm_eps": 0.0}, ValueError, "norm_eps must be above 0"),
        ({"types": -1}, ValueError, "types"),
        ({"embedding_norm": 1}, TypeError, "embedding_norm"),
        ({"attention_dropout": 1.0}, ValueError, "attention_dropout must be .* below 1"),
        ({"dropout": None}, TypeError, "dropout"),
    ],
)
def test_configs_that_cannot_be(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        config(**options)


def test_global_projections_start_as_copies() -> None:
    window = SlidingWindow(16, 2, left=2)
    model = Encoder(Config(vocab=9, width=16, layers=1, heads=2, length=8), [window])
    (attention,) = (part for part in model.modules() if isinstance(part, MultiheadAttention))
    assert torch.equal(window.q_global.weight, attention.q_proj.weight)
    assert torch.equal(window.v_global.weight, attention.v_proj.weight)
    assert window.k_global.weight is not attention.k_proj.weight


def test_global_projections_that_were_set_before_are_kept() -> None:
    set_before = [SlidingWindow(WIDTH, HEADS, left=2) for _ in range(2)]
    mechanisms = [SlidingWindow(WIDTH, HEADS, left=2) for _ in range(2)]
    for own, source in zip(mechanisms, set_before, strict=True):
        own.load_state_dict(source.state_dict())
    model = Encoder(config(), mechanisms)
    for found, source in zip(model.mechanisms, set_before, strict=True):
        for name, own in source.state_dict().items():
            assert torch.equal(found.state_dict()[name], own)


@pytest.mark.parametrize(
    ("mechanisms", "told"),
    [
        (Attention(), "got Attention Attention.*; lambda layer"),
        (Attention, "got type .*Attention.*; lambda layer"),
        (torch.nn.ModuleList([Attention()]), "got ModuleList"),
        (None, "got NoneType"),
        ("full", "got str 'full'"),
    ],
)
def test_mechanisms_of_another_kind(mechanisms: Any, told: str) -> None:
    with pytest.raises(
        TypeError, match=f"mechanisms must be a list .* a function .* a pattern .*, {told}"
    ):
        Encoder(config(), mechanisms)


def test_patterns_are_mechanisms() -> None:
    """One for all layers, one for each, or one by a layer's number."""
    pattern = Window(1, 1)
    ways: list[Any] = [
        lambda layer: Attention(pattern),
        lambda layer: pattern,
        [pattern] * 2,
        pattern,
    ]
    models = [made(Encoder, mechanisms) for mechanisms in ways]
    for model in models:
        first, second = model.mechanisms
        assert first is not second
        assert torch.equal(model(tokens()), models[0](tokens()))
