"""Models compute by longspan what they compute eagerly: the mask is the model's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.hf import register
from longspan.hf.attention import attend

from .tiny import (
    DECODERS,
    KINDS,
    additive,
    band,
    hidden,
    model,
    padding,
    same_gradients,
    tokens,
    transformers,
)


def both(kind: str, **more: Any) -> tuple[Any, Any]:
    register()
    return model(kind, **more), model(kind, implementation="longspan", **more)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", [None, "none", "right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_as_eager_attention(kind: str, side: str | None) -> None:
    """Outputs of real tokens, and gradients of all parameters through them."""
    eager, ours = both(kind)
    ids = tokens()
    mask = None if side is None else padding(side)
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    wanted, found = hidden(eager, ids, mask)[real], hidden(ours, ids, mask)[real]
    close(found, wanted)
    weight = torch.randn(wanted.shape)
    (wanted * weight).sum().backward()
    (found * weight).sum().backward()
    same_gradients(ours, eager)


def test_a_models_own_scale() -> None:
    """GPT-2 may divide by the layer's number too."""
    eager, ours = both("gpt2")
    for made in (eager, ours):
        for layer, block in enumerate(made.h):
            block.attn.scaling = 0.5 / (layer + 1)
    close(hidden(ours, tokens()), hidden(eager, tokens()))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_a_mask_of_four_dims_is_taken_as_it_is(kind: str) -> None:
    """Neither causal nor padding, of every head its own; bool or added to the scores."""
    eager, ours = both(kind)
    ids = tokens()
    allowed = (torch.rand(2, 4, 19, 19) < 0.4) | band(19, 0, 0)
    wanted = hidden(eager, ids, additive(allowed))
    close(hidden(ours, ids, allowed), wanted)
    close(hidden(ours, ids, additive(allowed)), wanted)
    uneven = torch.randn(2, 1, 19, 19)
    close(hidden(ours, ids, uneven), hidden(eager, ids, uneven))


def test_a_mask_of_one_row_is_for_all_rows() -> None:
    eager, ours = both("llama")
    ids, keys = tokens(), torch.rand(2, 1, 1, 19) < 0.6
    close(hidden(ours, ids, keys), hidden(eager, ids, additive(keys)))


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_packed_texts_do_not_see_each_other(kind: str) -> None:
    eager, ours = both(kind)
    ids = tokens()
    places = torch.cat([torch.arange(7), torch.arange(9), torch.arange(3)])[None].expand(2, -1)
    found = hidden(ours, ids, position_ids=places, use_cache=False)
    close(found, hidden(eager, ids, position_ids=places, use_cache=False))
    close(found[:, 7:16], hidden(ours, ids[:, 7:16], use_cache=False))


def test_a_models_own_bidirectional_switch() -> None:
    eager, ours = both("llama")
    eager.config.is_causal = ours.config.is_causal = False
    ids, mask = tokens(), padding("right")
    found = hidden(ours, ids, mask)
    close(found[mask.bool()], hidden(eager, ids, mask)[mask.bool()])
    assert not torch.allclose(found[0, 0], hidden(model("llama"), ids, mask)[0, 0], atol=1e-3)


def test_cross_attention_and_a_decoder() -> None:
    """BERT as a decoder that also looks at an encoder's text of another length."""
    register()
    made = []
    for name in ("eager", "longspan"):
        torch.manual_seed(1)
        config = model("bert").config
        config.is_decoder = config.add_cross_attention = True
        config._attn_implementation = name
        made.append(transformers.BertModel(config).eval())
    memory, mask = torch.randn(2, 11, 32), padding("right", length=11, missing=4)
    more = dict(encoder_hidden_states=memory, encoder_attention_mask=mask)
    close(hidden(made[1], tokens(), **more), hidden(made[0], tokens(), **more))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("kind", DECODERS)
def test_generate(kind: str, side: str, beams: int) -> None:
    """With its cache, which for Mistral forgets."""
    eager, ours = both(kind, writes=True)
    options: dict[str, Any] = dict(
        attention_mask=padding(side),
        max_new_tokens=12,
        num_beams=beams,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    wanted, found = eager.generate(tokens(), **options), ours.generate(tokens(), **options)
    assert torch.equal(found.sequences, wanted.sequences)
    for a, b in zip(found.scores, wanted.scores, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_text_in_pieces(kind: str) -> None:
    """Several new tokens at once, after others in a cache."""
    _, ours = both(kind)
    ids, mask = tokens(), padding("left")
    whole = hidden(ours, ids, mask)
    first = ours(input_ids=ids[:, :12], attention_mask=mask[:, :12], use_cache=True)
    places = {} if kind != "gpt2" else {"position_ids": torch.arange(12, 19)[None]}
    rest = hidden(ours, ids[:, 12:], mask, past_key_values=first.past_key_values, **places)
    close(rest, whole[:, 12:])


def test_a_cache_of_a_fixed_size() -> None:
    eager, ours = both("llama", writes=True)
    options: dict[str, Any] = dict(
        attention_mask=padding("left"),
        max_new_tokens=6,
        do_sample=False,
        cache_implementation="static",
        disable_compile=True,
    )
    found = ours.generate(tokens(), **options)
    assert torch.equal(found, eager.generate(tokens(), **options))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_dropout_in_training(kind: str) -> None:
    """It acts in training, by torch's seed, and not in evaluation."""
    register()
    made = model(kind, implementation="longspan")
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for module in made.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
        for name in ("dropout", "attn_dropout"):
            if hasattr(module, "is_causal") and hasattr(module, name):
                getattr(module, name).p = 0.5
    quiet = hidden(made, tokens())
    made.train()
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(hidden(made, tokens()))
    assert torch.equal(runs[0], runs[1])
    assert not torch.allclose(runs[0], runs[2], atol=1e-2)
    assert not torch.allclose(runs[0], quiet, atol=1e-2)
    assert torch.equal(hidden(made.eval(), tokens()), quiet)


@pytest.mark.parametrize("kind", ["bert", "llama"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(kind: str, reentrant: bool) -> None:
    register()
    made, mask = model(kind, implementation="longspan"), padding("right")
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    made.train()
    made.enable_input_require_grads()
    made.config.use_cache = False
    weight = torch.randn(19, 32)
    found = []
    for checkpointed in (False, True):
        if checkpointed:
            made.gradient_checkpointing_enable({"use_reentrant": reentrant})
        made.zero_grad()
        (hidden(made, tokens(), mask) * weight).sum().backward()
        found.append([p.grad for p in made.parameters() if p.grad is not None])
    assert len(found[0]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind: str) -> None:
    """No further from float32 than eager attention in half precision, give or take a half."""
    eager, ours = both(kind)
    mask = padding("right")
    real = mask.bool()
    exact = hidden(eager, tokens(), mask)[real]
    wanted, found = (
        (hidden(made.bfloat16(), tokens(), mask)[real].float() - exact).square().mean().sqrt()
        for made in (eager, ours)
    )
    assert 0 < found < 1.5 * wanted


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_all_pairs_are_refused(kind: str) -> None:
    register()
    made = model(kind, implementation="longspan")
    with pytest.raises(NotImplementedError, match="output_attentions"):
        made(input_ids=tokens(), output_attentions=True)
    with pytest.raises(ValueError, match="output_attentions"):
        made.config.output_attentions = True


def test_a_softcap_is_refused() -> None:
    register()
    torch.manual_seed(1)
    config = transformers.Gemma2Config(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
    )
    made = transformers.AutoModel.from_config(config, attn_implementation="longspan")
    with pytest.raises(NotImplementedError, match="softcap"):
        made(input_ids=tokens())


def test_sinks_are_refused() -> None:
    register()
    torch.manual_seed(1)
    config = transformers.GptOssConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=16,
        num_local_experts=2,
        num_experts_per_tok=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )
    made = transformers.AutoModel.from_config(config, attn_implementation="longspan")
    with pytest.raises(NotImplementedError, match="attention sinks"):
        made(input_ids=tokens())


@pytest.mark.parametrize("name", ["block_indices", "indices"])
def test_keys_that_a_model_selects_by_itself_are_refused(name: str) -> None:
    layer, x = torch.nn.Linear(1, 1), torch.randn(1, 2, 9, 4)
    selected = torch.zeros(1, 1, 9, 2, dtype=torch.int64)
    with pytest.raises(NotImplementedError, match=rf"selected.*\({name}\).*hf\.restore"):
        attend(layer, x, x, x, None, **{name: selected})
    assert attend(layer, x, x, x, None, **{name: None})[0].shape == (1, 9, 2, 4)


def test_a_model_that_adds_its_mask_by_itself_is_refused() -> None:
    register()
    made = model("mpnet", implementation="longspan")
    with pytest.raises(NotImplementedError, match=r"longspan\.hf\.use"):
        made(input_ids=tokens())


def test_masks_that_say_nothing_clear_are_refused() -> None:
    register()
    made = model("bert", implementation="longspan")
    with pytest.raises(TypeError, match=r"\.bool\(\)"):
        made(input_ids=tokens(), attention_mask=torch.ones(2, 1, 19, 19, dtype=torch.long))
    with pytest.raises(ValueError, match="must broadcast"):
        made(input_ids=tokens(), attention_mask=torch.ones(2, 1, 19, 18, dtype=torch.bool))
    with pytest.raises(ValueError, match="two dims"):
        made(input_ids=tokens(), attention_mask=torch.ones(2, 19, 19))


def test_texts_told_apart_by_lengths_alone_are_refused() -> None:
    register()
    made = model("llama", implementation="longspan")
    ends = torch.tensor([0, 7, 19], dtype=torch.int32)
    with pytest.raises(ValueError, match="position_ids"):
        made(input_ids=tokens(1), cu_seq_lens_q=ends, cu_seq_lens_k=ends, use_cache=False)


def test_import_does_not_load_transformers() -> None:
    code = "import sys, longspan.hf; print('transformers' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
