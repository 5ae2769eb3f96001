"""Global tokens, and the layer's input, on their way to a layer's mechanism."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longspan.hf import check, restore, use
from longspan.hf.layers import attention_layers
from longspan.nn import Attention, BigBird, LearnedWindow, SlidingWindow
from longspan.patterns import Causal, Full, Global, Pattern, Window
from longspan.weights import Bell, Ramp, variance_of

from ..nn import naive
from .tiny import (
    BERTS,
    DECODERS,
    USABLE,
    additive,
    band,
    hidden,
    model,
    padding,
    tokens,
    transformers,
)


def some(batch: int = 2, length: int = 19) -> Tensor:
    """The first token, and one more of the last sample."""
    found = torch.zeros(batch, length, dtype=torch.bool)
    found[:, 0] = found[-1, 7] = True
    return found


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def moved(made: Any) -> None:
    """Mechanisms as if they had been trained: no longer copies of their layers."""
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "longspan" in name:
                parameter.add_(0.2 * torch.randn(parameter.shape))


class Naive(nn.Module):
    """What BERT's self-attention computes with Longformer's, written with loops."""

    def __init__(self, layer: Any, left: int, tokens: Tensor, real: Tensor) -> None:
        super().__init__()
        self.layer, self.left, self.tokens, self.real = layer, left, tokens, real

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        layer, own, size = self.layer, self.layer.longspan, self.layer.attention_head_size
        tokens, real = self.tokens & self.real, self.real

        def near(b: int, h: int, i: int, j: int) -> bool:
            return bool(real[b, j]) and (abs(i - j) <= self.left or bool(tokens[b, j]))

        def all_of_them(b: int, h: int, i: int, j: int) -> bool:
            return bool(real[b, j])

        parts = [(layer.query, layer.key, layer.value), (own.q_global, own.k_global, own.v_global)]
        y, rows = (
            naive.attend(*(naive.split(project(x), size) for project in three), sees)
            for three, sees in zip(parts, (near, all_of_them), strict=True)
        )
        return naive.join(torch.where(tokens[:, None, :, None], rows, y)), None


def naively(made: Any, left: int, tokens: Tensor, real: Tensor) -> Any:
    """A model with the same weights whose attention is written with loops."""
    wanted = deepcopy(made)
    for layer in wanted.encoder.layer:
        layer.attention.self = Naive(layer.attention.self, left, tokens, real)
    return wanted


@pytest.mark.parametrize("side", ["none", "right", "left"])
def test_longformer_under_bert(side: str) -> None:
    """Outputs, and gradients of every parameter, those of the global projections too."""
    made, mask, ids = model("bert"), padding(side, length=11, missing=4), tokens(length=11)
    use(made, SlidingWindow(32, 4, left=2), global_tokens=lambda input_ids: some(2, 11))
    moved(made)
    wanted = naively(made, 2, some(2, 11), mask.bool())
    real = mask.bool()
    found, theirs = hidden(made, ids, mask)[real], hidden(wanted, ids, mask)[real]
    close(found, theirs)
    weight = torch.randn(found.shape)
    (found * weight).sum().backward()
    (theirs * weight).sum().backward()
    gradients = {
        name.replace("self.layer.", "self."): parameter.grad
        for name, parameter in wanted.named_parameters()
    }
    compared = 0
    for name, parameter in made.named_parameters():
        if parameter.grad is not None and "pooler" not in name:
            scale = max(1.0, float(parameter.grad.abs().max()))
            close(parameter.grad / scale, gradients[name] / scale)
            compared += "global" in name
    assert compared == 12


@pytest.mark.parametrize("kind", [kind for kind in BERTS if kind != "modernbert"])
def test_projections_start_as_the_layers(kind: str) -> None:
    """So that a window of everything, with or without global tokens, is the model itself."""
    made = model(kind)
    wanted = hidden(made, tokens(), padding("right"))
    use(made, SlidingWindow(32, 4, left=19), global_tokens=lambda input_ids: some())
    real = padding("right").bool()
    close(hidden(made, tokens(), padding("right"))[real], wanted[real])
    first, second = (layer.longspan for layer in attention_layers(made))
    assert not torch.equal(first.q_global.weight, second.q_global.weight)


def test_global_rows_have_the_scale_of_the_model() -> None:
    """Which need not be 1/√D, in rows whose projections are the mechanism's no more than in
    others.
    """
    made = model("bert")
    for layer in attention_layers(made):
        layer.scaling = 1.1
    wanted = hidden(made, tokens(), padding("right"))
    use(made, SlidingWindow(32, 4, left=19), global_tokens=lambda input_ids: some())
    real = padding("right").bool()
    close(hidden(made, tokens(), padding("right"))[real], wanted[real])
    assert not torch.allclose(wanted[real], hidden(model("bert"), tokens())[real], atol=1e-3)


ESM: dict[str, Any] = dict(
    vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mask_token_id=3,
    intermediate_size=48, max_position_embeddings=48, pad_token_id=0, token_dropout=False,
    position_embedding_type="absolute",
)  # fmt: skip
WHISPER: dict[str, Any] = dict(
    vocab_size=40, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
    max_source_positions=19, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1,
)  # fmt: skip


def scaled_by_itself(kind: str) -> tuple[Any, dict[str, Any]]:
    """A model whose layers scale, or do not scale, their queries by themselves; and its inputs."""
    torch.manual_seed(0)
    inputs: dict[str, Any] = dict(input_ids=tokens(), attention_mask=padding("right"))
    if kind == "esm":
        made = transformers.EsmModel(transformers.EsmConfig(**ESM, attn_implementation="eager"))
    elif kind == "whisper":
        config = transformers.WhisperConfig(**WHISPER, attn_implementation="eager")
        made = transformers.WhisperModel(config).get_encoder()
        inputs = dict(input_features=torch.randn(2, 8, 38))
    else:
        made = model("bert")
        for layer in attention_layers(made):
            layer.scaling = 1.0
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return made.eval(), inputs


@pytest.mark.parametrize("kind", ["esm", "whisper", "none at all"])
def test_layers_that_hand_on_a_scale_of_1(kind: str) -> None:
    """Queries that were scaled before, and queries that never are, in rows of all projections."""
    made, inputs = scaled_by_itself(kind)
    real = padding("none" if kind == "whisper" else "right").bool()
    wanted = made(**inputs).last_hidden_state[real]
    everything = torch.ones(2, 19, dtype=torch.bool)
    use(made, SlidingWindow(32, 4, left=2))
    near = made(**inputs).last_hidden_state[real]
    assert not torch.allclose(near, wanted, atol=1e-2)
    close(made(**inputs, global_tokens=everything).last_hidden_state[real], wanted)
    use(made, SlidingWindow(32, 4, left=19))
    close(made(**inputs).last_hidden_state[real], wanted)
    use(made, LearnedWindow(32, 4, mean_reach=1e6, max_reach=2_000_000))
    close(made(**inputs).last_hidden_state[real], wanted)


def test_a_mechanism_reads_queries_as_they_were_projected() -> None:
    made, inputs = scaled_by_itself("whisper")
    layer, read = attention_layers(made)[0], []
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6))
    layer.longspan.register_forward_pre_hook(lambda own, args: read.append(args[0]))
    layer.q_proj.register_forward_hook(lambda own, args, y: read.append(y))
    made(**inputs)
    close(read[1], read[0].unflatten(-1, (4, 8)).transpose(1, 2))


@pytest.mark.parametrize("name", ["q_norm", "k_layernorm", "query_layernorm", "qk_norm", "q_ln"])
def test_norms_after_projections_are_refused(name: str) -> None:
    """Rows with copies of the projections would miss them; unless they are none, or the
    projections were set.
    """
    made = model("bert")
    layer = attention_layers(made)[1]
    layer.add_module(name, nn.LayerNorm(8))
    with pytest.raises(ValueError, match=rf"layer 1 of Bert.*\({name}\).*global_projections="):
        use(made, SlidingWindow(32, 4, left=2))
    assert made.config._attn_implementation == "eager"
    use(made, SlidingWindow(32, 4, left=2, global_projections=False))
    use(made, SlidingWindow(32, 4, left=2), layers=[0])
    window = SlidingWindow(32, 4, left=2)
    window.copy_projections(*(nn.Linear(32, 32) for _ in range(3)))
    use(made, window)
    setattr(layer, name, nn.Identity())
    use(made, SlidingWindow(32, 4, left=2))


def test_projections_of_three_in_one() -> None:
    """ModernBERT's, whose queries and keys are turned afterwards: values alone can be compared."""
    made = model("modernbert")
    layer = attention_layers(made)[0]
    use(made, lambda number: SlidingWindow(32, 4, left=2) if number == 0 else None)
    for part, name in enumerate(("q_global", "k_global", "v_global")):
        weight = getattr(layer.longspan, name).weight
        assert torch.equal(weight, layer.Wqkv.weight[32 * part : 32 * (part + 1)])


def test_projections_that_were_set_stay() -> None:
    made = model("bert")
    window = SlidingWindow(32, 4, left=2)
    own = [nn.Linear(32, 32) for _ in range(3)]
    window.copy_projections(*own)
    use(made, window)
    assert torch.equal(attention_layers(made)[1].longspan.q_global.weight, own[0].weight)
    loaded = SlidingWindow(32, 4, left=3)
    loaded.load_state_dict(window.state_dict())
    use(made, lambda layer: loaded)
    assert torch.equal(attention_layers(made)[0].longspan.k_global.weight, own[1].weight)


def test_projections_of_unknown_names() -> None:
    made = model("bert")
    for layer in attention_layers(made):
        layer.ask = layer.query
        del layer.query
    with pytest.raises(ValueError, match=r"copy_projections\(q, k, v\) first"):
        use(made, SlidingWindow(32, 4, left=2))
    use(made, SlidingWindow(32, 4, left=2, global_projections=False))


@pytest.mark.parametrize("kind", USABLE)
def test_a_pattern_with_global_tokens(kind: str) -> None:
    """What the model asks for holds beside them: causality, and windows of its config."""
    made, causal = model(kind), kind in DECODERS
    mask = padding("right")
    both = band(19, 2, 2) | Global(some()).dense(19)
    allowed = both & (band(19, 19, 0) if causal else True) & mask.bool()[:, None, None]
    if kind == "mistral":
        allowed = allowed & band(19, 4, 0)
    if kind in ("modernbert", "mpnet"):
        # Neither takes a mask of its pairs that could be written out here.
        use(made, Window(2, 2) | Global(some()))
        wanted = hidden(made, tokens(), mask)
        restore(made)
    else:
        wanted = hidden(made, tokens(), additive(allowed))
    real = mask.bool()
    use(made, Window(2, 0 if causal else 2))
    if causal:
        assert not torch.allclose(hidden(made, tokens(), mask)[real], wanted[real], atol=1e-3)
    close(hidden(made, tokens(), mask, global_tokens=some())[real], wanted[real])


def test_full_attention_stays_as_it_is() -> None:
    made = model("bert")
    wanted = hidden(made, tokens())
    use(made, Full())
    close(hidden(made, tokens(), global_tokens=some()), wanted)


@pytest.mark.parametrize(
    "mechanism",
    [
        BigBird(40, block=4, tokens="extra"),
        LearnedWindow(32, 4, mean_reach=2, max_reach=4),
        SlidingWindow(32, 4, left=2),
        SlidingWindow(32, 4, left=2, global_projections=False),
        Attention(Window(2, 2)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_token_sees_a_global_one(mechanism: Any) -> None:
    """And is seen by it, in one layer; a global token beyond the padding is none."""
    made, mask = model("bert"), padding("right")
    use(made, mechanism, layers=[0], global_tokens=lambda input_ids: some())
    ids = tokens()
    embedded = made.embeddings(ids).detach().requires_grad_()
    y = made.encoder.layer[0].attention.self(
        embedded, made_mask(made, embedded, mask), global_tokens=some()
    )[0]
    (seen,) = torch.autograd.grad(y[1, 12].sum(), embedded, retain_graph=True)
    assert float(seen[1, 0].abs().max()) > 0 and float(seen[1, 7].abs().max()) > 0
    assert float(seen[1, 3].abs().max()) == 0 and float(seen[0].abs().max()) == 0
    (sees,) = torch.autograd.grad(y[1, 7].sum(), embedded)
    assert bool((sees[1, :13].abs().amax(-1) > 0).all())
    assert float(sees[1, 13:].abs().max()) == 0


def made_mask(made: Any, x: Tensor, mask: Tensor) -> Any:
    from transformers.masking_utils import create_bidirectional_mask

    return create_bidirectional_mask(made.config, x, mask)


@pytest.mark.parametrize("outside", [False, True])
def test_a_function_finds_them(outside: bool) -> None:
    """Of whatever arguments it names, given by place or by name, in a model or one around it."""
    asked: list[dict[str, Any]] = []

    def questions(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        asked.append(dict(input_ids=input_ids, token_type_ids=token_type_ids))
        assert token_type_ids is not None
        return token_type_ids == 0

    made = transformers.BertForMaskedLM(model("bert").config).eval() if outside else model("bert")
    inside = made.bert if outside else made
    ids, kinds = tokens(), (torch.arange(19) > 3).long().expand(2, -1)
    use(made, Window(2, 2), global_tokens=questions)
    found = hidden(inside, ids, padding("right"), token_type_ids=kinds)
    if outside:
        made(ids, padding("right"), kinds)
        made(ids, attention_mask=padding("right"), token_type_ids=kinds)
        assert len(asked) == 3
    assert all(one["input_ids"] is ids and one["token_type_ids"] is kinds for one in asked)
    restore(made)
    asked.clear()
    use(made, Window(2, 2))
    assert torch.equal(
        hidden(inside, ids, padding("right"), token_type_ids=kinds, global_tokens=kinds == 0),
        found,
    )
    assert asked == []


def test_the_tokens_of_a_call_come_first() -> None:
    made = model("bert")
    use(made, Window(2, 2), global_tokens=lambda input_ids: torch.zeros_like(input_ids).bool())
    none = hidden(made, tokens())
    found = hidden(made, tokens(), global_tokens=some())
    assert not torch.allclose(found, none, atol=1e-3)
    assert torch.equal(hidden(made, tokens()), none)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_nothing_is_left_for_the_next_call(kind: str) -> None:
    """Also not of a call that raised on its way."""
    made = model(kind)
    use(made, SlidingWindow(32, 4, left=2, global_projections=kind == "bert"))
    alone = hidden(made, tokens())
    hidden(made, tokens(), global_tokens=some())
    assert torch.equal(hidden(made, tokens()), alone)

    def broken(*args: Any) -> None:
        raise RuntimeError("broken")

    handle = made.encoder.layer[1].register_forward_hook(broken)
    with pytest.raises(RuntimeError, match="broken"):
        hidden(made, tokens(), global_tokens=some())
    handle.remove()
    assert torch.equal(hidden(made, tokens()), alone)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    """A layer that is computed again has the global tokens of its own call, whatever came after."""
    made, mask = model("bert"), padding("right")
    use(made, lambda layer: SlidingWindow(32, 4, left=2) if layer == 0 else Window(1, 1))
    moved(made)
    for module in made.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    made.train()
    made.enable_input_require_grads()
    weight, found = torch.randn(19, 32), []
    for checkpointed in (False, True):
        if checkpointed:
            made.gradient_checkpointing_enable({"use_reentrant": reentrant})
        made.zero_grad()
        first = hidden(made, tokens(), mask, global_tokens=some())
        second = hidden(made, tokens(), mask, global_tokens=some().roll(3, 1))
        ((first + 2 * second) * weight).sum().backward()
        found.append([p.grad for p in made.parameters() if p.grad is not None])
    assert len(found[0]) > 20
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_restore_takes_the_hooks_along() -> None:
    made = transformers.BertForMaskedLM(model("bert").config).eval()
    use(made, SlidingWindow(32, 4, left=2), global_tokens=lambda input_ids: some())
    restore(made)
    for part in made.modules():
        assert not part._forward_pre_hooks
        assert not [name for name in vars(part) if "longspan" in name]


def test_a_decoder_with_a_cache_is_refused() -> None:
    made = model("llama", writes=True)
    use(made, Window(2, 0), global_tokens=lambda input_ids: input_ids == 3)
    options: dict[str, Any] = dict(max_new_tokens=2, do_sample=False)
    with pytest.raises(ValueError, match="use_cache=False"):
        made.generate(tokens(), attention_mask=padding("none"), **options)
    made.generate(tokens(), attention_mask=padding("none"), use_cache=False, **options)


def test_a_model_that_keeps_them_to_itself() -> None:
    made = model("bert")
    forward = made.encoder.forward
    made.encoder.forward = lambda x, attention_mask, **unused: forward(x, attention_mask)
    use(made, Window(2, 2), global_tokens=lambda input_ids: some())
    with pytest.raises(ValueError, match="does not hand them down"):
        hidden(made, tokens())


def siglip() -> Any:
    """A model that takes what it does not know, and drops it."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    config = transformers.SiglipVisionConfig(
        **sizes, intermediate_size=48, image_size=32, patch_size=8
    )
    return transformers.SiglipVisionModel(config).eval()


def test_tokens_of_a_call_that_a_model_drops(tmp_path: Path) -> None:
    """Every time, and not in calls without them; also in copies, and in what was saved."""
    made, image = siglip(), torch.randn(2, 3, 32, 32)
    given = torch.ones(2, 16, dtype=torch.bool)
    use(made, Window(1, 1))
    alone = made(pixel_values=image).last_hidden_state
    torch.save(made, tmp_path / "made.pt")
    loaded = torch.load(tmp_path / "made.pt", weights_only=False)
    for own in (made, deepcopy(made), loaded):
        for _ in range(2):
            with pytest.raises(ValueError, match=r"Siglip.* does not hand them down to its Siglip"):
                own(pixel_values=image, global_tokens=given)
            assert torch.equal(own(pixel_values=image).last_hidden_state, alone)
        own(pixel_values=image, global_tokens=None)
    restore(made)
    assert not any("longspan" in name for part in made.modules() for name in vars(part))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in made.modules())
    made(pixel_values=image, global_tokens=given)


def test_a_model_inside_another_that_drops_them() -> None:
    """Whichever of the two was given to `use`; the inner one by itself takes them."""
    outer = transformers.BertForMaskedLM(model("bert").config).eval()
    inner, ids = outer.bert, tokens()

    def dropping(*args: Any, global_tokens: Tensor | None = None, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    use(inner, Window(2, 2))
    use(outer, Window(2, 2))
    forward, outer.forward = outer.forward, dropping
    with pytest.raises(ValueError, match="BertForMaskedLM was given global tokens"):
        outer(ids, global_tokens=some())
    inner(ids, global_tokens=some())
    outer(ids)
    outer.forward = forward
    outer(ids, global_tokens=some())


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_that_is_computed_again_raises_nothing(reentrant: bool) -> None:
    """Of a call without global tokens, after one that has them."""
    made = model("bert").train()
    use(made, Window(2, 2))
    made.enable_input_require_grads()
    made.gradient_checkpointing_enable({"use_reentrant": reentrant})
    first = hidden(made, tokens())
    second = hidden(made, tokens(), global_tokens=some())
    (first + second).sum().backward()


def test_a_check_leaves_nothing_behind() -> None:
    made = model("bert")
    check(made, Window(2, 2), [tokens()], repeats=1)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in made.modules())
    assert not any("longspan" in name for part in made.modules() for name in vars(part))


def test_errors() -> None:
    made = model("bert")
    with pytest.raises(TypeError, match=r"model\(…, global_tokens=mask\)"):
        use(made, Window(2, 2), global_tokens=some())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no argument words"):
        use(made, Window(2, 2), global_tokens=lambda words: words)
    assert made.config._attn_implementation == "eager"
    use(made, Window(2, 2), global_tokens=lambda input_ids: input_ids[:, :3] == 3)
    with pytest.raises(ValueError, match=r"\(batch, keys\) = \(2, 19\)"):
        hidden(made, tokens())
    with pytest.raises(TypeError, match=r"\.bool\(\)"):
        hidden(made, tokens(), global_tokens=some().long())
    with pytest.raises(ValueError, match="this call has none"):
        made(inputs_embeds=torch.randn(1, 5, 32))
    made(inputs_embeds=torch.randn(1, 5, 32), global_tokens=torch.zeros(1, 5, dtype=torch.bool))
    use(made, BigBird(40, block=4))
    with pytest.raises(ValueError, match="tokens='extra'"):
        hidden(made, tokens(), global_tokens=some())
    pattern: Pattern = Causal() & Window(2, 2)
    use(made, Attention(pattern))
    assert hidden(made, tokens(), global_tokens=some()).shape == (2, 19, 32)


@pytest.mark.parametrize("weight", [Bell(variance_of(2, 0.5), threshold=0.5), Ramp(2.0, 2.0)])
@pytest.mark.parametrize("pattern", [Full(), Window(3, 3)])
def test_no_weight_cuts_global_tokens(weight: Any, pattern: Any) -> None:
    """They see everything and everything sees them, as if their pairs were exempt."""
    found, wanted, mask = model("bert"), model("bert"), torch.zeros(2, 19, dtype=torch.bool)
    mask[:, 4] = True
    exempt = copy(weight)
    exempt.exempt = Global(mask)
    use(found, Attention(pattern, weight=weight))
    use(
        wanted,
        Attention(pattern if isinstance(pattern, Full) else pattern | Global(mask), weight=exempt),
    )
    without = hidden(found, tokens())
    have = hidden(found, tokens(), global_tokens=mask)
    torch.testing.assert_close(have, hidden(wanted, tokens()))
    assert not torch.equal(have, without)
    assert torch.equal(hidden(found, tokens()), without)


def test_functions_may_have_arguments_of_their_own() -> None:
    def marked(input_ids: torch.Tensor, mark: int = 9, **more: Any) -> torch.Tensor:
        return input_ids == mark

    found, wanted = model("bert"), model("bert")
    use(found, Window(2, 2), global_tokens=partial(marked, mark=11))
    use(wanted, Window(2, 2), global_tokens=lambda input_ids: input_ids == 11)
    ids = tokens()
    ids[:, 3] = 11
    assert torch.equal(hidden(found, ids), hidden(wanted, ids))
