"""MPNet: its bias by distance stays, as a small table."""

from __future__ import annotations

import inspect
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.hf import check, lengthen, profile, restore, use
from longspan.hf.layers import attention_layers
from longspan.nn import Attention, LearnedWindow, SlidingWindow
from longspan.patterns import Full, Global, Window
from longspan.weights import Bias, DistanceBias

from .tiny import (
    additive,
    band,
    config,
    hidden,
    model,
    padding,
    same_gradients,
    tokens,
    transformers,
)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def long() -> Any:
    """Longer than the furthest bucket is away."""
    made = model("mpnet")
    lengthen(made, 300)
    return made


def test_far_tokens() -> None:
    """All buckets, and gradients to them; the last begins before the table ends."""
    eager, made = long(), long()
    use(made, Full())
    ids, mask = tokens(length=300), padding("right", length=300, missing=30)
    wanted, found = (hidden(own, ids, mask)[mask.bool()] for own in (eager, made))
    close(found, wanted)
    # Some gradients are 0 but for rounding, which so many tokens add up.
    wanted, found = (hidden(own.double(), ids, mask)[mask.bool()] for own in (eager, made))
    weight = torch.randn(wanted.shape)
    (wanted * weight).sum().backward()
    (found * weight).sum().backward()
    same_gradients(made, eager)
    buckets = made.encoder.relative_attention_bias.weight.grad.abs().amax(1)
    assert int((buckets > 0).sum()) >= 30


def test_the_bias_is_a_small_table() -> None:
    """The same for every pair as the tensor of all pairs that it is in the place of."""
    made = long()
    x = torch.zeros(1, 300, 32)
    wanted = made.encoder.compute_position_bias(x)
    use(made, Window(5, 5))
    found = made.encoder.compute_position_bias(x).bias
    assert isinstance(found, DistanceBias) and found.table.shape == (4, 257)
    place = torch.arange(300)
    away = (place[None, :] - place[:, None]).clamp(-128, 128) + 128
    assert torch.equal(found.table[:, away][None], wanted)


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_mechanism(side: str) -> None:
    made, mask = model("mpnet"), padding(side)
    allowed = band(19, 4, 4) & mask.bool()[:, None, None]
    wanted = hidden(made, tokens(), additive(allowed))[mask.bool()]
    use(made, SlidingWindow(32, 4, left=4))
    close(hidden(made, tokens(), mask)[mask.bool()], wanted)
    use(made, Attention(Window(4, 4)))
    close(hidden(made, tokens(), mask)[mask.bool()], wanted)


def test_a_learned_window_beside_the_bias() -> None:
    made = model("mpnet")
    layer, x = attention_layers(made)[0], torch.randn(2, 19, 32)
    bias = made.encoder.compute_position_bias(x)
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6))
    torch.nn.init.normal_(layer.longspan.U_d, std=2.0)
    q, k, v = (own(x).unflatten(-1, (4, 8)).transpose(1, 2) for own in (layer.q, layer.k, layer.v))
    asked = layer.longspan.asks(q, 19, ls.nn.Setting())
    wanted = ls.attention(q, k, v, asked.pattern, weight=(Bias(bias), *asked.weight))
    found = layer(x, None, made.encoder.compute_position_bias(x))[0]
    close(found, layer.o(wanted.transpose(1, 2).flatten(2)))
    (found * torch.randn_like(found)).sum().backward()
    assert made.encoder.relative_attention_bias.weight.grad.abs().sum() > 0
    assert layer.longspan.U_d.grad.abs().sum() > 0


def test_a_model_with_a_head() -> None:
    """Restored bit by bit; a copy stays what it was."""
    torch.manual_seed(0)
    made = transformers.MPNetForMaskedLM(config("mpnet")).eval()
    ids, mask, names = tokens(), padding("right"), list(made.state_dict())

    def said(own: Any) -> Tensor:
        return own(input_ids=ids, attention_mask=mask).logits

    before = said(made)
    use(made, Window(2, 2) | Global(1))
    changed = said(made)
    assert not torch.allclose(changed, before, atol=1e-4)
    copied = deepcopy(made)
    restore(made)
    assert torch.equal(said(made), before)
    assert list(made.state_dict()) == names
    assert not any(
        name in part.__dict__
        for part in made.modules()
        for name in ("forward", "compute_position_bias")
    )
    assert torch.equal(said(copied), changed)
    copied.mpnet.encoder.relative_attention_bias.weight.data.zero_()
    assert not torch.equal(said(copied), changed)
    restore(copied)
    use(made, lambda layer: None)
    close(said(made), before)


HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")


def headed(name: str) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, f"MPNetFor{name}")(config("mpnet")).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return made


@pytest.mark.parametrize("name", HEADS)
def test_global_tokens_come_through_a_head(name: str, tmp_path: Path) -> None:
    """Which does not know of them; before those that a function finds, and for one call."""
    made, ids = headed(name), tokens()
    wanted = made(ids)[0]
    use(made, Window(1, 1))
    alone = made(ids)[0]
    assert not torch.allclose(alone, wanted, atol=1e-3)
    everything = torch.ones_like(ids).bool()
    close(made(ids, global_tokens=everything)[0], wanted)
    assert torch.equal(made(ids)[0], alone)
    use(made, Window(1, 1), global_tokens=nothing_at_all)
    assert torch.equal(made(ids)[0], alone)
    close(made(ids, global_tokens=everything)[0], wanted)
    torch.save(made, tmp_path / "made.pt")
    for again in (deepcopy(made), torch.load(tmp_path / "made.pt", weights_only=False)):
        close(again(ids, global_tokens=everything)[0], wanted)
        assert torch.equal(again(ids)[0], alone)
    restore(made)
    assert torch.equal(made(ids)[0], wanted)


def nothing_at_all(input_ids: Tensor) -> Tensor:
    return torch.zeros_like(input_ids).bool()


def test_a_head_still_says_what_its_arguments_are() -> None:
    """A Trainer drops all other columns."""
    made = headed("SequenceClassification")
    wanted = inspect.signature(made.forward)
    use(made, Window(1, 1))
    assert inspect.signature(made.forward) == wanted
    assert "input_ids" in inspect.signature(made.mpnet.forward).parameters


def test_profile_is_of_its_own_attention() -> None:
    """Before, and while patterns are in its layers."""
    made, ids = model("mpnet"), tokens()
    batch = {"input_ids": ids, "attention_mask": padding("right")}
    wanted = profile(made, [batch])
    use(made, Window(1, 1))
    cut = hidden(made, ids)
    assert torch.equal(profile(made, [batch]).mass, wanted.mass)
    assert torch.equal(hidden(made, ids), cut)


def test_dropout_in_training() -> None:
    made = model("mpnet")
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    use(made, Window(4, 4))
    quiet = hidden(made, tokens())
    for layer in attention_layers(made):
        layer.dropout.p = 0.5
    assert torch.equal(hidden(made, tokens()), quiet)
    made.train()
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(hidden(made, tokens()))
    assert torch.equal(runs[0], runs[1])
    assert not torch.allclose(runs[0], runs[2], atol=1e-2)
    assert not torch.allclose(runs[0], quiet, atol=1e-2)


def test_half_precision() -> None:
    """No further from float32 than its own attention in half precision, give or take a half."""
    eager, ours, mask = model("mpnet"), model("mpnet"), padding("right")
    use(ours, Full())
    exact = hidden(eager, tokens(), mask)[mask.bool()]
    wanted, found = (
        (hidden(made.bfloat16(), tokens(), mask)[mask.bool()].float() - exact).square().mean()
        for made in (eager, ours)
    )
    assert 0 < found.sqrt() < 1.5 * wanted.sqrt()


def test_saved_and_loaded(tmp_path: Path) -> None:
    made = model("mpnet")
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6)
    use(made, window)
    made.save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    use(again, window)
    again.load_state_dict(made.state_dict())
    assert torch.equal(hidden(again, tokens()), hidden(made, tokens()))


def test_errors() -> None:
    made = model("mpnet")
    with pytest.raises(ValueError, match=r"4 heads.*for 2"):
        use(made, LearnedWindow(32, 2, mean_reach=3, max_reach=6))
    assert made.config._attn_implementation == "eager"
    use(made, Window(2, 2))
    with pytest.raises(NotImplementedError, match="output_attentions"):
        made(input_ids=tokens(), output_attentions=True)


def test_a_check_leaves_it_as_it_was() -> None:
    made = model("mpnet")
    wanted = hidden(made, tokens())
    found = check(made, Window(2, 2), [tokens()])
    assert found.error > 1e-3
    assert made.config._attn_implementation == "eager"
    assert torch.equal(hidden(made, tokens()), wanted)
    assert made(tokens(), output_attentions=True).attentions[0] is not None
