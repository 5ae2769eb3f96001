"""Models of an encoder, which reads, and a decoder, which writes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.hf import check, lengthen, load, profile, restore, save, use
from longspan.hf.layers import attention_layers
from longspan.nn import LearnedWindow, SlidingWindow
from longspan.patterns import Causal, Full, Global, Window

from .tiny import transformers

SIZES: dict[str, Any] = dict(
    vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
    decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=48,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    forced_eos_token_id=None,
)  # fmt: skip
KINDS = {
    "bart": "Bart", "mbart": "MBart", "m2m100": "M2M100", "pegasus": "Pegasus",
    "t5": "T5", "mt5": "MT5", "umt5": "UMT5",
}  # fmt: skip
T5S: dict[str, Any] = dict(
    vocab_size=40, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_heads=4,
    relative_attention_num_buckets=8, relative_attention_max_distance=12, pad_token_id=0,
    eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip
MARK = 7


def model(kind: str = "bart") -> Any:
    """The same weights at every call, large, so that attention is sharp."""
    name, sizes = KINDS[kind], T5S if "t5" in kind else SIZES
    made = getattr(transformers, f"{name}ForConditionalGeneration")(
        getattr(transformers, f"{name}Config")(**sizes, attn_implementation="eager")
    )
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.requires_grad and "norm" not in name:
                parameter.normal_(std=0.3, generator=source)
    return made.eval()


def text(length: int = 24) -> Tensor:
    found = torch.randint(8, 40, (2, length), generator=torch.Generator().manual_seed(1))
    found[:, 5] = MARK
    return found


def mask() -> Tensor:
    found = torch.ones(2, 24, dtype=torch.int64)
    found[1, 17:] = 0
    return found


def logits(made: Any, **more: Any) -> Tensor:
    ids = text()
    found: Tensor = made(
        input_ids=ids, attention_mask=mask(), decoder_input_ids=ids[:, :9], **more
    ).logits
    return found


def written(made: Any, **more: Any) -> Tensor:
    found: Tensor = made.generate(
        text(), attention_mask=mask(), max_new_tokens=6, do_sample=False, **more
    )
    return found


def marked(input_ids: Tensor) -> Tensor:
    return input_ids == MARK


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_what_the_model_does(kind: str) -> None:
    eager, made = model(kind), model(kind)
    use(made, Full())
    use(made, Causal(), layers=range(2, len(attention_layers(made))))
    assert made.config._attn_implementation == "longspan"
    torch.testing.assert_close(logits(made), logits(eager), atol=2e-4, rtol=1e-4)
    assert torch.equal(written(made), written(eager))
    assert torch.equal(written(made, num_beams=3), written(eager, num_beams=3))
    restore(made)
    assert torch.equal(logits(made), logits(eager))


def test_the_encoder_is_meant_unless_layers_are_named() -> None:
    made = model()
    use(made, Window(2, 2) | Global(1))
    held = [getattr(layer, "longspan", None) is not None for layer in attention_layers(made)]
    assert held == [True, True, False, False, False]
    use(made, Window(3, 0), layers=[2, 4])
    held = [getattr(layer, "longspan", None) is not None for layer in attention_layers(made)]
    assert held == [True, True, True, False, True]
    with pytest.raises(ValueError, match=r"layer 3 of Bart.* is causal, and .* looks ahead"):
        use(made, Window(3, 3), layers=[3])
    with pytest.raises(ValueError, match=r"layers are 0 … 4, got 5"):
        use(made, Window(3, 3), layers=[5])


def test_a_window_is_the_mask_of_that_window() -> None:
    eager, made, ids = model(), model(), text()
    use(made, Window(2, 2))
    band = Window(2, 2).dense(24) & mask().bool()[:, None, None]
    added = torch.where(band, 0.0, torch.finfo(torch.float32).min)
    vectors = eager.get_encoder()(input_ids=ids, attention_mask=added).last_hidden_state
    wanted = eager(
        encoder_outputs=(vectors,), attention_mask=mask(), decoder_input_ids=ids[:, :9]
    ).logits
    torch.testing.assert_close(logits(made), wanted, atol=2e-4, rtol=1e-4)


def test_an_encoder_or_a_decoder_by_itself() -> None:
    whole, part = model(), model()
    use(whole, Window(2, 2))
    use(part.get_encoder(), Window(2, 2))
    assert torch.equal(logits(whole), logits(part))
    use(whole, Window(3, 0), layers=[2, 3, 4])
    use(part.get_decoder(), Window(3, 0))
    assert torch.equal(logits(whole), logits(part))


def test_global_tokens_are_those_of_the_encoder() -> None:
    found, given = model(), model()
    use(found, Window(2, 2), global_tokens=marked)
    use(given, Window(2, 2))
    for made in (found, given):
        use(made, Window(3, 0), layers=[2, 3, 4])
    without = logits(given)
    assert torch.equal(logits(found), logits(given, global_tokens=marked(text())))
    assert not torch.equal(logits(found), without)
    assert written(found).shape[0] == 2


def test_learned_windows_train_and_write() -> None:
    made = model().train()
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=8), global_tokens=marked)
    use(made, LearnedWindow(32, 2, mean_reach=3, max_reach=8, causal=True), layers=[2, 3, 4])
    ids = text()
    made(input_ids=ids, attention_mask=mask(), labels=ids[:, :9].contiguous()).loss.backward()
    for layer in attention_layers(made):
        assert layer.longspan.U_d.grad is not None and layer.longspan.U_d.grad.any()
    assert written(made.eval()).shape[0] == 2
    with pytest.raises(ValueError, match=r"has 2 heads, and the mechanism is for 4"):
        use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=8, causal=True), layers=[2])


def test_saved_and_loaded(tmp_path: Path) -> None:
    made = model()
    use(made, SlidingWindow(32, 4, left=2), global_tokens=marked)
    use(made, Window(3, 0), layers=[3])
    save(made, tmp_path)
    again = load(tmp_path, global_tokens=marked)
    assert type(again) is type(made)
    assert torch.equal(logits(again), logits(made))
    assert torch.equal(written(again), written(made))


@pytest.mark.parametrize("kind", ["bart", "mbart"])
def test_lengthened(kind: str, tmp_path: Path) -> None:
    made, ids = model(kind), text(90)
    old = made.get_encoder().embed_positions.weight.detach().clone()
    before = logits(made)
    lengthen(made, 96)
    assert torch.equal(logits(made), before)
    assert made.config.max_position_embeddings == 96
    for part in (made.get_encoder(), made.get_decoder()):
        assert part.embed_positions.weight.shape == (98, 32)
    new = made.get_encoder().embed_positions.weight
    for place in range(96):
        assert torch.equal(new[2 + place], old[2 + place % 48])
    use(made, Window(4, 4) | Global(1))
    found = made(input_ids=ids, decoder_input_ids=ids[:, :9]).logits
    save(made, tmp_path)
    again = load(tmp_path)
    assert torch.equal(again(input_ids=ids, decoder_input_ids=ids[:, :9]).logits, found)


def test_what_a_window_would_change() -> None:
    made = model()
    before = logits(made)
    texts = {"input_ids": text(), "attention_mask": mask(), "decoder_input_ids": text()[:, :9]}
    found = check(made, Window(2, 2), [texts])
    assert found.error > 0 and found.logits is not None and found.logits.error > 0
    assert len(found.cosine) == int(mask().sum())
    assert torch.equal(logits(made), before)
    same = check(made, Full(), [texts])
    assert same.error < 1e-5 and same.logits is not None and same.logits.error < 1e-5


def test_how_far_the_encoder_looks() -> None:
    made = model()
    texts = {"input_ids": text(), "attention_mask": mask(), "decoder_input_ids": text()[:, :9]}
    found = profile(made, [texts])
    assert found.mass.shape == (2, 4, 24)
    assert torch.equal(found.mass, profile(made.get_encoder(), [mask_of(texts)]).mass)


def mask_of(texts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what the decoder reads."""
    return {name: own for name, own in texts.items() if not name.startswith("decoder")}


SMALL: dict[str, Any] = dict(
    vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
)


def bert_to_bert() -> Any:
    """Of two models, each of which knows nothing of the other."""
    torch.manual_seed(0)
    read = transformers.BertConfig(**SMALL)
    write = transformers.BertConfig(**SMALL, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(read, write)
    return transformers.EncoderDecoderModel(config).eval()


def t5gemma() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(
        **SMALL, num_key_value_heads=2, head_dim=8, attn_logit_softcapping=None,
        final_logit_softcapping=None, sliding_window=64, pad_token_id=0,
    )  # fmt: skip
    part = transformers.T5GemmaModuleConfig
    config = transformers.T5GemmaConfig(encoder=part(**sizes), decoder=part(**sizes), vocab_size=40)
    return transformers.T5GemmaForConditionalGeneration(config).eval()


@pytest.mark.parametrize("make", [bert_to_bert, t5gemma])
def test_a_decoder_is_known_by_its_place(make: Any) -> None:
    """Also where its layers' config does not say so; global tokens are not its."""
    made = make()
    use(made, Window(3, 3))
    held = [getattr(layer, "longspan", None) is not None for layer in attention_layers(made)]
    assert held == [True, True, False, False]
    use(made, Window(3, 0), layers=[2, 3])
    without = logits(made)
    assert not torch.equal(logits(made, global_tokens=marked(text())), without)
    found = deepcopy(made)
    use(found, Window(3, 3), global_tokens=marked)
    assert torch.equal(logits(found), logits(made, global_tokens=marked(text())))
    restore(found)
    assert not any("longspan" in name for part in found.modules() for name in vars(part))


@pytest.mark.parametrize("kind", ["PegasusX", "BigBirdPegasus"])
def test_an_encoder_that_cannot_be_reached(kind: str) -> None:
    """Its decoder is not taken in its place, but where its layers are named."""
    torch.manual_seed(0)
    sizes = {name: own for name, own in SIZES.items() if name != "forced_eos_token_id"}
    made = getattr(transformers, f"{kind}Model")(
        getattr(transformers, f"{kind}Config")(**sizes, block_size=8)
    ).eval()
    for mechanism in (Window(3, 3), Window(3, 0)):
        with pytest.raises(ValueError, match=r"the encoder of .* by layers=range\(3\)"):
            use(made, mechanism)
    assert made.config._attn_implementation != "longspan"
    use(made, Window(3, 0), layers=range(3))
    use(made.get_decoder(), Window(2, 0))


def test_a_bias_of_an_unknown_kind_is_told_before_a_call() -> None:
    sizes: dict[str, Any] = dict(
        vocab_size=40, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2,
        num_heads=4, num_experts=2, pad_token_id=0, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    made = transformers.SwitchTransformersModel(transformers.SwitchTransformersConfig(**sizes))
    with pytest.raises(ValueError, match="SwitchTransformersAttention adds a bias by distance"):
        use(made, Window(3, 3))
    assert made.config._attn_implementation != "longspan"


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_gradient_checkpointing_of_a_bias(kind: str, reentrant: bool) -> None:
    """The bias that the first layer makes for all of them gets the gradients of all."""
    grads = []
    for checkpointed in (False, True):
        made = model(kind)
        use(made, Window(5, 5))
        made.train()
        for part in made.modules():
            if hasattr(part, "dropout") and isinstance(part.dropout, float):
                part.dropout = 0.0
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        made.enable_input_require_grads()
        if checkpointed:
            made.gradient_checkpointing_enable({"use_reentrant": reentrant})
        logits(made).sin().sum().backward()
        grads.append({name: one.grad for name, one in made.named_parameters()})
    compared = 0
    for name, wanted in grads[0].items():
        if wanted is not None:
            torch.testing.assert_close(grads[1][name], wanted, atol=2e-3, rtol=1e-3)
            compared += "relative_attention_bias" in name
    assert compared >= 2


T5_KINDS = [kind for kind in KINDS if "t5" in kind]


@pytest.mark.parametrize("kind", T5_KINDS)
def test_a_bias_by_distance_stays(kind: str) -> None:
    """With its gradient, under a window too; and no tensor of all pairs is made for it."""
    eager, made, ids = model(kind), model(kind), text()
    use(made, Window(5, 5))
    band = Window(5, 5).dense(24) & mask().bool()[:, None, None]
    added = torch.where(band, 0.0, torch.finfo(torch.float32).min)
    wanted = eager.get_encoder()(input_ids=ids, attention_mask=added).last_hidden_state
    found = made.get_encoder()(input_ids=ids, attention_mask=mask()).last_hidden_state
    real = mask().bool()
    torch.testing.assert_close(found[real], wanted[real], atol=2e-4, rtol=1e-4)
    for own, one in ((made, found), (eager, wanted)):
        one[real].square().sum().backward()
        assert (
            own.get_encoder()
            .block[0]
            .layer[0]
            .SelfAttention.relative_attention_bias.weight.grad.any()
        )
    grads = [
        own.get_encoder().block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad
        for own in (made, eager)
    ]
    torch.testing.assert_close(*grads, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("kind", T5_KINDS)
def test_t5_with_mechanisms(kind: str, tmp_path: Path) -> None:
    made = model(kind)
    use(made, LearnedWindow(24, 4, mean_reach=3, max_reach=8), global_tokens=marked)
    use(made, Window(4, 0), layers=[3])
    before = logits(made)
    assert written(made).shape[0] == 2
    save(made, tmp_path)
    again = load(tmp_path, global_tokens=marked)
    torch.testing.assert_close(logits(again), before)
    restore(made)
    assert torch.equal(logits(made), logits(model(kind)))
    with pytest.raises(ValueError, match=r"heads of 6 channels.*embed_dim=24"):
        use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=8))
