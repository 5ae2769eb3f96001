"""Mechanisms beside the adapters of PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longspan import hf
from longspan.hf.layers import attention_layers
from longspan.nn import Attention, BigBird, LearnedWindow, SlidingWindow
from longspan.patterns import Window
from longspan.weights import Alibi

from .tiny import hidden, model, padding, tokens

peft = pytest.importorskip("peft")

MECHANISMS: dict[str, Any] = {
    "learned": lambda: LearnedWindow(32, 4, mean_reach=3, max_reach=6),
    "sliding": lambda: SlidingWindow(32, 4, left=3),
    "bigbird": lambda: BigBird(48, block=4),
    "attention": lambda: Attention(Window(3, 3), weight=Alibi(nn.Parameter(torch.rand(4)))),
}


def with_mechanism(name: str) -> Any:
    torch.manual_seed(6)
    made = model("bert")
    more = {"global_tokens": lambda input_ids: input_ids == input_ids[:, :1]}
    hf.use(made, MECHANISMS[name](), **(more if name == "sliding" else {}))
    return made


def lora(made: Any, **more: Any) -> Any:
    torch.manual_seed(7)
    return peft.get_peft_model(made, peft.LoraConfig(r=2, target_modules=["query"], **more))


def trained(made: Any) -> None:
    """All that trains moves."""
    made.train()
    # Where a window's own gradient starts is 0 until the other parameter has moved.
    for parameter in made.parameters():
        if parameter.requires_grad:
            with torch.no_grad():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    (hidden(made, tokens()) * torch.randn(19, 32)).sum().backward()
    for name, parameter in made.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            # No softmax sees what a bias adds to all keys alike.
            assert bool(parameter.grad.any()) or name.endswith("k_global.bias"), name
            with torch.no_grad():
                largest = parameter.grad.abs().max().clamp(min=1e-9)
                parameter.add_(parameter.grad / largest, alpha=0.1)
    made.eval()


def parameters(made: Any, *, training: bool) -> set[str]:
    return {
        name.rpartition("longspan.")[2].removeprefix("modules_to_save.default.")
        for name, p in made.named_parameters()
        if "longspan" in name and p.requires_grad == training
    }


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_that_are_there_before(name: str, tmp_path: Path) -> None:
    """`modules_to_save=["longspan"]` trains them with the adapter, and saves them in it."""
    made = with_mechanism(name)
    wanted, mask = hidden(made, tokens(), padding("right")), padding("right")
    own = parameters(made, training=True)
    adapted = lora(made, modules_to_save=["longspan"])
    assert torch.equal(hidden(adapted, tokens(), mask), wanted)
    assert parameters(adapted, training=True) == own
    trained(adapted)
    found = hidden(adapted, tokens(), mask)
    assert not torch.allclose(found, wanted, atol=1e-3)
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(with_mechanism(name), tmp_path).eval()
    assert torch.equal(hidden(again, tokens(), mask), found)
    with adapted.disable_adapter():
        assert torch.equal(hidden(adapted, tokens(), mask), wanted)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(hidden(merged, tokens(), mask), found, atol=1e-4, rtol=1e-4)
    hf.save(merged, tmp_path / "merged")
    more = {"global_tokens": lambda input_ids: input_ids == input_ids[:, :1]}
    back = hf.load(tmp_path / "merged", **(more if name == "sliding" else {}))
    assert torch.equal(hidden(back, tokens(), mask), hidden(merged, tokens(), mask))


def test_not_named_they_stand_still() -> None:
    adapted = lora(with_mechanism("learned"))
    assert parameters(adapted, training=True) == set()


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_that_come_after(name: str, tmp_path: Path) -> None:
    """They train, and are saved beside the adapter, by `save_adapter`."""
    adapted = lora(model("bert"))
    torch.manual_seed(6)
    more = {"global_tokens": lambda input_ids: input_ids == input_ids[:, :1]}
    more = more if name == "sliding" else {}
    hf.use(adapted, MECHANISMS[name](), **more)
    assert parameters(adapted, training=False) == set()
    trained(adapted)
    found = hidden(adapted, tokens(), padding("right"))
    adapted.save_pretrained(tmp_path)
    hf.save_adapter(adapted, tmp_path)
    again = peft.PeftModel.from_pretrained(model("bert"), tmp_path).eval()
    hf.load_adapter(again, tmp_path, **more)
    assert torch.equal(hidden(again, tokens(), padding("right")), found)
    hf.restore(again)
    assert not any(hasattr(layer, "longspan") for layer in attention_layers(again))


def test_what_peft_wraps_is_saved_as_it_is_now(tmp_path: Path) -> None:
    adapted = lora(with_mechanism("learned"), modules_to_save=["longspan"])
    trained(adapted)
    hf.save_adapter(adapted, tmp_path)
    plain = model("bert")
    hf.load_adapter(plain, tmp_path)
    for layer, wrapped in zip(attention_layers(plain), attention_layers(adapted), strict=True):
        assert torch.equal(layer.longspan.W_p, wrapped.longspan.modules_to_save["default"].W_p)
    with pytest.raises(TypeError, match="save_adapter beside it"):
        hf.save(adapted, tmp_path)


def test_keys_before_those_of_the_text() -> None:
    """Prefix tuning; a call without a mask sees all of them."""
    found = []
    for implementation in ("eager", "longspan"):
        hf.register()
        made = model("bert", implementation=implementation)
        torch.manual_seed(3)
        config = peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=4)
        adapted = peft.get_peft_model(made, config).eval()
        found.append(adapted(input_ids=tokens()).last_hidden_state)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
