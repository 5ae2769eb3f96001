"""Patterns and mechanisms in the layers of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longspan.hf import register, restore, use
from longspan.hf.layers import attention_layers
from longspan.nn import Attention, BigBird, LearnedWindow, Mechanism, SlidingWindow
from longspan.normalizers import Entmax
from longspan.patterns import Causal, Full, Global, Pattern, Strided, Window
from longspan.weights import Alibi, Bell, variance_of

from .tiny import (
    DECODERS,
    KINDS,
    USABLE,
    additive,
    band,
    hidden,
    model,
    padding,
    same_gradients,
    tokens,
    transformers,
)

PLAIN_ENCODERS = [kind for kind in USABLE if kind not in (*DECODERS, "modernbert")]


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("kind", USABLE)
def test_everything_is_what_the_model_does(kind: str, side: str) -> None:
    """Full() in an encoder and Causal() in a decoder leave it as it is, windows of its config
    and gradients too.
    """
    eager, made, mask = model(kind), model(kind), padding(side)
    use(made, Causal() if kind in DECODERS else Full())
    wanted = hidden(eager, tokens(), mask)[mask.bool()]
    found = hidden(made, tokens(), mask)[mask.bool()]
    close(found, wanted)
    weight = torch.randn(wanted.shape)
    (wanted * weight).sum().backward()
    (found * weight).sum().backward()
    same_gradients(made, eager)


@pytest.mark.parametrize("kind", [*PLAIN_ENCODERS, "gpt2", "llama"])
def test_a_window_is_a_band(kind: str) -> None:
    causal = kind in DECODERS
    made, mask = model(kind), padding("right")
    allowed = band(19, 4, 0 if causal else 2) & mask.bool()[:, None, None]
    wanted = hidden(made, tokens(), additive(allowed))[mask.bool()]
    use(made, Window(4, 0) if causal else Window(4, 2))
    close(hidden(made, tokens(), mask)[mask.bool()], wanted)


def test_a_models_own_window_holds_beside_a_pattern() -> None:
    """Mistral sees five tokens, itself among them; ModernBERT's second layer four to each side."""
    made = model("mistral")
    allowed = band(19, 4, 0) & Strided(2).dense(19)
    wanted = hidden(made, tokens(), additive(allowed))
    use(made, Causal() & Strided(2))
    close(hidden(made, tokens()), wanted)

    bert = model("modernbert")
    first = hidden(bert, tokens())
    use(bert, Window(4, 4), layers=[1])
    close(hidden(bert, tokens()), first)
    use(bert, Window(3, 4), layers=[1])
    assert not torch.allclose(hidden(bert, tokens()), first, atol=1e-3)


def test_layers_of_their_own() -> None:
    """A function of the layer's number; None leaves a layer as it is; a later call, the others."""
    made, ids = model("bert"), tokens()
    plain = hidden(made, ids)
    use(made, lambda layer: None)
    close(hidden(made, ids), plain)
    asked: list[int] = []

    def choose(layer: int) -> Pattern | Mechanism:
        asked.append(layer)
        return Window(3, 3) if layer == 0 else Attention(Window(1, 1), normalizer=Entmax(1.5))

    use(made, choose)
    assert asked == [0, 1]
    kept = hidden(made, ids)
    first, second = attention_layers(made)
    assert first.longspan.meaning.pattern == Window(3, 3)
    assert second.longspan.meaning.pattern == Window(1, 1)
    restore(made)
    use(made, choose(1), layers=[1])
    assert not hasattr(first, "longspan")
    assert not torch.allclose(hidden(made, ids), kept, atol=1e-3)
    use(made, Window(3, 3), layers=[0])
    assert torch.equal(hidden(made, ids), kept)


@pytest.mark.parametrize("kind", USABLE)
def test_restore(kind: str) -> None:
    for implementation in ("eager", "sdpa") if kind in KINDS else ("eager",):
        made, mask = model(kind, implementation=implementation), padding("right")
        before, names = hidden(made, tokens(), mask), list(made.state_dict())
        use(made, Causal() & Window(2, 0))
        use(made, LearnedWindow(32, 4, mean_reach=2, max_reach=4, causal=True), layers=[0])
        restore(made)
        assert torch.equal(hidden(made, tokens(), mask), before)
        assert list(made.state_dict()) == names
        assert made.config._attn_implementation == implementation
        with pytest.raises(ValueError, match="nothing"):
            restore(made)


def test_a_model_inside_another_is_restored_with_it() -> None:
    outside = transformers.BertForMaskedLM(model("bert").config)
    use(outside, Window(2, 2))
    use(outside.bert, Window(1, 1), layers=[0])
    restore(outside)
    assert outside.bert.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="nothing"):
        restore(outside.bert)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_mechanism_is_a_part_of_the_model(kind: str, tmp_path: Path) -> None:
    """A copy for every layer; its parameters train, move and are saved."""
    made, causal = model(kind), kind == "llama"
    mechanism = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=causal)
    use(made, mechanism)
    held = [layer.longspan for layer in attention_layers(made)]
    assert all(type(one) is LearnedWindow and one is not mechanism for one in held)
    assert held[0] is not held[1]
    names = [name for name, _ in made.named_parameters() if "longspan" in name]
    assert len(names) == 4
    assert not held[0].training
    made.train()
    assert held[0].training

    parameters = [p for name, p in made.named_parameters() if name in names]
    start = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    # A last norm hides sums of squares from what is before it.
    weight = torch.randn(19, 32)
    # The second parameter of a window moves once the first has.
    for _ in range(2):
        optimizer.zero_grad()
        (hidden(made, tokens()) * weight).sum().backward()
        optimizer.step()
    assert all(not torch.equal(p, old) for p, old in zip(parameters, start, strict=True))

    made.eval().save_pretrained(tmp_path)
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], made.state_dict()[name]) for name in names)
    again = model(kind)
    use(again, mechanism)
    again.load_state_dict(made.state_dict())
    assert torch.equal(hidden(again, tokens()), hidden(made, tokens()))
    assert made.to("meta").get_parameter(names[0]).is_meta


def test_a_mechanism_gets_padding_and_scale() -> None:
    """GPT-2 may scale by the layer's number too; padded tokens are seen by nobody."""
    config = model("gpt2").config
    config.scale_attn_by_inverse_layer_idx = True
    torch.manual_seed(1)
    made = transformers.GPT2Model(config).eval()
    mask = padding("left")
    allowed = band(19, 4, 0) & mask.bool()[:, None, None]
    wanted = hidden(made, tokens(), additive(allowed))[mask.bool()]
    use(made, SlidingWindow(32, 4, left=4, causal=True))
    close(hidden(made, tokens(), mask)[mask.bool()], wanted)


def test_a_mechanism_with_tensors_of_its_own() -> None:
    made = model("bert")
    use(made, Attention(Window(5, 5), weight=Alibi(nn.Parameter(torch.full((4,), 0.5)))))
    hidden(made, tokens()).square().sum().backward()
    for layer in attention_layers(made):
        assert float(layer.longspan.weight_slopes.grad.abs().min()) > 0


@pytest.mark.parametrize(
    ("kind", "learned"),
    [("gpt2", False), ("llama", False), ("mistral", False), ("gpt2", True), ("llama", True)],
)
def test_generate_within_a_window(kind: str, learned: bool) -> None:
    """With a cache as without one."""
    made = model(kind, writes=True)
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True)
    use(made, window if learned else Window(3, 0))
    options: dict[str, Any] = dict(
        attention_mask=padding("left"), max_new_tokens=8, do_sample=False
    )
    found = made.generate(tokens(), **options)
    assert torch.equal(found, made.generate(tokens(), use_cache=False, **options))


def test_what_looks_ahead_is_refused_in_a_causal_model() -> None:
    made = model("llama")
    with pytest.raises(
        ValueError, match=r"layer 0 of LlamaModel.*and Window\(4, 4\) looks.*use Window\(4, 0\)"
    ):
        use(made, Window(4, 4))
    with pytest.raises(ValueError, match=r"Causal\(\) & pattern"):
        use(made, Causal() | Global(1))
    with pytest.raises(ValueError, match="causal=True"):
        use(made, SlidingWindow(32, 4, left=2))
    assert made.config._attn_implementation == "eager"
    use(made, Causal() & (Window(4, 4) | Global(1)))


def test_places_in_a_text_that_a_cache_forgets_are_refused() -> None:
    made = model("mistral", writes=True)
    use(made, Causal() & (Window(3, 0) | Global(1)))
    with pytest.raises(ValueError, match="forgotten"):
        made.generate(tokens(), attention_mask=padding("none"), max_new_tokens=8, do_sample=False)


def test_a_cache_of_a_fixed_size_is_refused() -> None:
    made = model("llama", writes=True)
    use(made, Window(3, 0))
    with pytest.raises(ValueError, match="DynamicCache"):
        made.generate(
            tokens(),
            attention_mask=padding("none"),
            max_new_tokens=2,
            cache_implementation="static",
            disable_compile=True,
        )


def uniform(causal: bool = False) -> tuple[LearnedWindow, Attention]:
    """A window that has learned nothing yet, and the bell that it is then."""
    bell = Bell(variance_of(3.0, 0.5), threshold=0.5, max_reach=6)
    learned = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=causal)
    return learned, Attention(Causal() if causal else Full(), weight=bell)


MASKS = {
    "bool": band(19, 5, 1).expand(2, -1, -1, -1),
    "float": additive(band(19, 5, 1)) + torch.arange(19.0) / 9,
}


@pytest.mark.parametrize("kind", MASKS)
def test_a_mechanism_beside_a_mask(kind: str) -> None:
    found, wanted = model("bert"), model("bert")
    for made, own in zip((found, wanted), uniform(), strict=True):
        use(made, own)
    close(hidden(found, tokens(), MASKS[kind]), hidden(wanted, tokens(), MASKS[kind]))


@pytest.mark.parametrize("kind", ["mistral", "modernbert"])
@pytest.mark.parametrize("side", ["none", "right"])
def test_a_mechanism_beside_a_window_of_the_config(kind: str, side: str) -> None:
    found, wanted, mask = model(kind), model(kind), padding(side)
    for made, own in zip((found, wanted), uniform(kind == "mistral"), strict=True):
        use(made, own)
    both = [hidden(made, tokens(), mask)[mask.bool()] for made in (found, wanted)]
    close(*both)
    both[0].square().sum().backward()
    assert all(layer.longspan.U_d.grad.any() for layer in attention_layers(found))


def test_a_mechanism_beside_packed_texts() -> None:
    found, wanted = model("llama"), model("llama")
    for made, own in zip((found, wanted), uniform(causal=True), strict=True):
        use(made, own)
    places = torch.cat([torch.arange(8), torch.arange(11)]).expand(2, -1)
    both = [hidden(m, tokens(), position_ids=places, use_cache=False) for m in (found, wanted)]
    close(*both)
    assert not torch.equal(both[0], hidden(found, tokens(), use_cache=False))


@pytest.mark.parametrize("kind", ["llama", "mistral", "modernbert"])
def test_rotary_positions_do_not_change_a_reach(kind: str) -> None:
    """One token, again and again: all places of a layer ask for the same."""
    made = model(kind)
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=kind != "modernbert"))
    first = attention_layers(made)[0].longspan
    with torch.no_grad():
        first.U_d.normal_()
    hidden(made, torch.full((1, 19), 7))
    reach = first.last_reach
    assert reach.std(1).min() > 0
    torch.testing.assert_close(reach, reach[:, :, :1].expand_as(reach))


def test_a_layer_whose_queries_are_not_known_is_told_so() -> None:
    config = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8)
    made = transformers.Phi3Model(
        transformers.Phi3Config(**config, vocab_size=9, num_key_value_heads=4, pad_token_id=0)
    )
    with pytest.raises(ValueError, match=r"layer 0 of Phi3Model turns its queries.*reads='stream'"):
        use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True))
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True, reads="stream"))
    assert hidden(made, torch.ones(1, 5, dtype=torch.int64)).shape == (1, 5, 32)


@pytest.mark.parametrize("kind", PLAIN_ENCODERS)
def test_heads_of_another_size_are_told_before_a_call(kind: str) -> None:
    with pytest.raises(ValueError, match=r"heads of 8 channels.*have 16.*embed_dim=32"):
        use(model(kind), LearnedWindow(64, 4, mean_reach=3, max_reach=6))


def test_advice_can_be_followed() -> None:
    with pytest.raises(ValueError, match="take SlidingWindow or LearnedWindow with causal=True"):
        use(model("llama"), BigBird(64, block=4))


def test_errors() -> None:
    made = model("bert")
    with pytest.raises(TypeError, match="PreTrainedModel"):
        use(nn.Linear(2, 2), Full())
    with pytest.raises(TypeError, match="mechanism must be"):
        use(made, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mechanism must be"):
        use(made, lambda layer: "window")  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match=r"layers are 0 … 1, got 2"):
        use(made, Full(), layers=[2])
    with pytest.raises(ValueError, match=r"4 heads.*for 2"):
        use(made, LearnedWindow(32, 2, mean_reach=3, max_reach=6))
    small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    clip = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config=small, vision_config=dict(small, image_size=8, patch_size=4)
        )
    )
    with pytest.raises(ValueError, match="several models inside"):
        use(clip, Full())
    with pytest.raises(ValueError, match="nothing"):
        restore(made)
    register()
    assert made.config._attn_implementation == "eager"


def test_heads_of_another_size_are_told() -> None:
    config = transformers.Qwen3Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=48,
    )  # fmt: skip
    made = transformers.Qwen3ForCausalLM(config)
    with pytest.raises(ValueError, match="make it with embed_dim=64"):
        use(made, LearnedWindow(32, 4, mean_reach=3, causal=True))
    use(made, LearnedWindow(64, 4, mean_reach=3, causal=True))
    assert made(torch.arange(3, 13)[None]).logits.shape == (1, 10, 40)


def test_projections_that_were_set_take_the_dtype_of_the_model() -> None:
    own, layer = SlidingWindow(32, 4, left=3), torch.nn.Linear(32, 32)
    own.copy_projections(layer, layer, layer)
    made = use(model("bert").bfloat16(), own, global_tokens=lambda input_ids: input_ids == 3)
    assert hidden(made, torch.full((1, 9), 3)).dtype == torch.bfloat16
    assert own.q_global.weight.dtype == torch.float32


def test_queries_that_a_layer_turns_by_itself_are_read_as_they_are_before() -> None:
    """Without angles among its arguments."""
    torch.manual_seed(0)
    config = transformers.RecurrentGemmaConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, lru_width=32,
        intermediate_size=48, attention_window_size=16, pad_token_id=0,
    )  # fmt: skip
    made = transformers.RecurrentGemmaModel(config).eval()
    window = LearnedWindow(32, 4, mean_reach=5, max_reach=25, causal=True)
    torch.nn.init.normal_(window.U_d)
    use(made, window)
    (layer,) = attention_layers(made)
    seen: list[torch.Tensor] = []
    layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    made(input_ids=torch.full((1, 30), 7), use_cache=False)
    own: Any = layer.longspan
    queries = layer.q_proj(seen[0]).unflatten(-1, (4, -1)).transpose(1, 2)  # type: ignore[operator]
    wanted = (own.factor * own.shares(queries)).float().clamp(max=25)
    torch.testing.assert_close(own.last_reach, wanted)
