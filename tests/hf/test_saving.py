"""Mechanisms in files, beside a model and by themselves."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from longspan.hf import lengthen, load, load_adapter, restore, save, save_adapter, use
from longspan.hf.layers import attention_layers
from longspan.nn import Attention, BigBird, LearnedWindow, Mechanism, SlidingWindow
from longspan.normalizers import Entmax
from longspan.patterns import Causal, Full, Global, Pattern, Random, Window
from longspan.weights import Alibi

from .tiny import DECODERS, USABLE, hidden, model, padding, tokens, transformers

FILES = {"longspan.json", "longspan.safetensors"}


def mechanisms(layer: int) -> Pattern | Mechanism:
    """One of each kind, over three BERTs of two layers."""
    torch.manual_seed(layer)
    learned = LearnedWindow(32, 4, mean_reach=3, max_reach=6)
    nn.init.normal_(learned.U_d)
    return [
        learned,
        SlidingWindow(32, 4, left=[2, 3, 4, 5]),
        BigBird(40, block=4, drawn=2, seed=3),
        Attention(
            Window(4, 4) | Random(1, block=2, length=40, seed=5),
            weight=Alibi(nn.Parameter(torch.rand(4))),
            normalizer=Entmax(1.5),
        ),
        Window(2, 3) | Global(torch.tensor([0, 4])),
        SlidingWindow(32, 4, left=2, global_projections=False),
    ][layer]


def global_tokens() -> torch.Tensor:
    found = torch.zeros(2, 19, dtype=torch.bool)
    found[:, 0] = found[1, 5] = True
    return found


@pytest.mark.parametrize("first", [0, 2, 4])
def test_a_model_comes_back_with_its_mechanisms(first: int, tmp_path: Path) -> None:
    made, mask = model("bert"), padding("right")
    use(made, lambda layer: mechanisms(first + layer))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "longspan" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    more = {} if first == 2 else {"global_tokens": global_tokens()}
    wanted = hidden(made, tokens(), mask, **more)
    save(made, tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again) is transformers.BertModel and not again.training
    assert torch.equal(hidden(again, tokens(), mask, **more), wanted)
    assert sorted(again.state_dict()) == sorted(made.state_dict())
    assert all((tmp_path / "run" / name).is_file() for name in FILES)
    assert not list((tmp_path / "run").glob(".saving*"))


@pytest.mark.parametrize("kind", USABLE)
def test_plain_transformers_loads_what_is_saved(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As if there had never been a mechanism, without a word about keys that it does not know."""
    made = model(kind)
    wanted = hidden(made, tokens())
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=kind in DECODERS))
    save(made, tmp_path)
    capfd.readouterr()
    again, told = transformers.AutoModel.from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(told.values())
    assert "UNEXPECTED" not in "".join(capfd.readouterr())
    assert torch.equal(hidden(again, tokens()), wanted)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_an_adapter_goes_onto_another_copy(kind: str, tmp_path: Path) -> None:
    """Which may have another head; and layers that had no mechanism have none there."""
    made = model(kind)
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=kind == "llama")
    nn.init.normal_(window.U_d)
    use(made, window, layers=[1])
    save_adapter(made, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 10_000
    plain = model(kind)
    outside = {
        "bert": transformers.BertForMaskedLM,
        "llama": transformers.LlamaForCausalLM,
    }[kind](plain.config)
    outside.base_model.load_state_dict(plain.state_dict(), strict=False)
    use(outside, Causal() & Window(1, 0))
    load_adapter(outside.eval(), tmp_path)
    first, second = attention_layers(outside)
    assert not hasattr(first, "longspan") and second.longspan.W_p.requires_grad
    assert not second.longspan.training
    inside = outside.base_model
    assert torch.equal(hidden(inside, tokens()), hidden(made, tokens()))
    restore(outside)
    assert inside.config._attn_implementation == "eager"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_model_that_writes_comes_back(kind: str, tmp_path: Path) -> None:
    """Weights that are tied stay so."""
    made = model(kind, writes=True)
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True))
    save(made, tmp_path)
    again = load(tmp_path)
    assert type(again) is type(made)
    options: dict[str, Any] = dict(
        attention_mask=padding("left"), max_new_tokens=6, do_sample=False
    )
    assert torch.equal(again.generate(tokens(), **options), made.generate(tokens(), **options))
    tied = [
        one.get_output_embeddings().weight is one.get_input_embeddings().weight
        for one in (again, made)
    ]
    assert tied == [kind == "gpt2"] * 2


def test_longer_positions_and_a_head_come_back(tmp_path: Path) -> None:
    made = transformers.BertForSequenceClassification(model("bert").config).eval()
    lengthen(made, 100)
    use(made, Window(3, 3))
    save(made, tmp_path)
    again = load(tmp_path)
    assert type(again) is transformers.BertForSequenceClassification
    ids = tokens(length=100)
    assert torch.equal(again(input_ids=ids).logits, made(input_ids=ids).logits)
    other = load(tmp_path, transformers.AutoModel)
    assert type(other) is transformers.BertModel
    assert torch.equal(hidden(other, ids), hidden(made.bert, ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes(dtype: torch.dtype, tmp_path: Path) -> None:
    """Projections have the model's dtype; what a mechanism computes for itself keeps its own."""
    made = model("bert").bfloat16()
    use(made, lambda layer: mechanisms(layer))
    save(made, tmp_path)
    again = load(tmp_path, dtype=dtype)
    first, second = attention_layers(again)
    assert first.longspan.W_p.dtype == torch.float32
    assert first.longspan.factor.dtype == torch.float64
    assert second.longspan.q_global.weight.dtype == dtype
    found = hidden(again, tokens(), global_tokens=global_tokens())
    if dtype == torch.bfloat16:
        assert torch.equal(found, hidden(made, tokens(), global_tokens=global_tokens()))


def test_projections_without_biases(tmp_path: Path) -> None:
    config = model("modernbert").config
    config.layer_types = ["full_attention"] * 2
    torch.manual_seed(1)
    made = transformers.ModernBertModel(config).eval()
    use(made, SlidingWindow(32, 4, left=2))
    assert attention_layers(made)[0].longspan.q_global.bias is None
    save(made, tmp_path)
    wanted = hidden(made, tokens(), global_tokens=global_tokens())
    assert torch.equal(hidden(load(tmp_path), tokens(), global_tokens=global_tokens()), wanted)


def test_a_function_for_global_tokens_is_asked_for_again(tmp_path: Path) -> None:
    made = model("bert")
    use(made, Window(2, 2), global_tokens=lambda input_ids: input_ids == input_ids[:, :1])
    save(made, tmp_path)
    again = load(tmp_path)
    with pytest.raises(ValueError, match="give it again"):
        hidden(again, tokens())
    wanted = hidden(made, tokens())
    mask = tokens() == tokens()[:, :1]
    assert torch.equal(hidden(again, tokens(), global_tokens=mask), wanted)
    again = load(tmp_path, global_tokens=lambda input_ids: input_ids == input_ids[:, :1])
    assert torch.equal(hidden(again, tokens()), wanted)


def test_files_of_an_earlier_model_go(tmp_path: Path) -> None:
    made = model("bert")
    use(made, Window(2, 2))
    save(made, tmp_path)
    with torch.no_grad():
        made.embeddings.word_embeddings.weight.add_(1.0)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    save(made, tmp_path)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]
    assert torch.equal(hidden(load(tmp_path), tokens()), hidden(made, tokens()))


def test_a_copy_of_a_model_has_everything(tmp_path: Path) -> None:
    made = model("bert")
    use(made, SlidingWindow(32, 4, left=2), global_tokens=lambda input_ids: global_tokens())
    wanted = hidden(made, tokens())
    copy = deepcopy(made)
    restore(made)
    assert torch.equal(hidden(copy, tokens()), wanted)
    restore(copy)
    assert torch.equal(hidden(copy, tokens()), hidden(made, tokens()))


def test_a_mechanism_of_two_layers_stays_one(tmp_path: Path) -> None:
    made, one = model("bert"), LearnedWindow(32, 4, mean_reach=3, max_reach=6)
    use(made, lambda layer: one)
    save(made, tmp_path)
    first, second = attention_layers(load(tmp_path))
    assert first.longspan is second.longspan
    assert torch.equal(first.longspan.W_p, one.W_p)


def test_tensors_of_two_mechanisms_do_not_share_memory(tmp_path: Path) -> None:
    made, slopes = model("bert"), nn.Parameter(torch.rand(4))
    use(made, lambda layer: Attention(Window(2, 2 + layer), weight=Alibi(slopes)))
    save(made, tmp_path)
    first, second = (layer.longspan.weight_slopes for layer in attention_layers(load(tmp_path)))
    assert torch.equal(first, slopes) and torch.equal(second, slopes)
    assert first.data_ptr() != second.data_ptr()


def test_a_failed_save_leaves_the_old_files(tmp_path: Path) -> None:
    class Own(Attention):
        pass

    made = model("bert")
    use(made, Window(2, 2))
    save(made, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    use(made, Own(Window(1, 1)))
    with pytest.raises(ValueError, match="Own is not one of"):
        save(made, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def _changed(folder: Path, **more: Any) -> None:
    path = folder / "longspan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def test_errors(tmp_path: Path) -> None:
    made = model("bert")
    for read in (load, lambda folder: load_adapter(made, folder)):
        with pytest.raises(FileNotFoundError, match=r"no longspan\.json"):
            read(tmp_path)
    with pytest.raises(ValueError, match="BertModel has no mechanism"):
        save(made, tmp_path)
    with pytest.raises(TypeError, match="PreTrainedModel"):
        save(nn.Linear(2, 2), tmp_path)
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6))
    save(made, tmp_path)
    config = made.config
    for change, told in (
        ({"num_hidden_layers": 3}, "layers 2, and BertModel has 3"),
        ({"num_attention_heads": 2}, "num_attention_heads 4, and BertModel has 2"),
    ):
        other = transformers.BertModel(type(config)(**{**config.to_dict(), **change}))
        with pytest.raises(ValueError, match=told):
            load_adapter(other, tmp_path)
        assert other.config._attn_implementation != "longspan"
    with pytest.raises(ValueError, match="causal=True"):
        load_adapter(model("gpt2"), tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({**config.to_dict(), "architectures": ["OwnBert"]})
    )
    with pytest.raises(ValueError, match="no OwnBert"):
        load(tmp_path)
    held = json.loads((tmp_path / "longspan.json").read_text())["mechanisms"]
    _changed(tmp_path, mechanisms=[held[0], {"kind": "Attention", **Attention(Full()).settings}])
    with pytest.raises(ValueError, match="does not fit its description"):
        load_adapter(made, tmp_path)
    _changed(tmp_path, format=99)
    with pytest.raises(ValueError, match="format 99, this version reads 1"):
        load_adapter(made, tmp_path)


def test_pooled_windows_come_back_with_one_budget(tmp_path: Path) -> None:
    made = model("bert").train()
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6, pooled=True)
    use(made, window, layers=[0])
    use(made, window, layers=[1])
    for _ in range(5):
        hidden(made, tokens())
    made.eval()
    first, second = (layer.longspan for layer in attention_layers(made))
    assert second._pool[0] is first
    save(made, tmp_path)
    again = load(tmp_path)
    assert torch.equal(hidden(again, tokens()), hidden(made, tokens()))
    first, second = (layer.longspan for layer in attention_layers(again))
    assert second._pool[0] is first


def test_a_checkpoint_of_a_trainer_is_told_apart(tmp_path: Path) -> None:
    use(model("bert"), Window(2, 2)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="written by save_pretrained or a Trainer: make the model"):
        load(tmp_path)


def test_what_is_not_its_own_stays(tmp_path: Path) -> None:
    """Beside weights that transformers would take for the model's."""
    others = ["model-best.safetensors", "model_of_mine.safetensors", "models.safetensors"]
    parts = ["model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    for name in (*others, *parts):
        (tmp_path / name).write_text("{}")
    save(use(model("bert"), Window(2, 2)), tmp_path)
    there = {path.name for path in tmp_path.iterdir()}
    assert there >= set(others) and not there & set(parts)


def test_an_adapter_takes_hooks_with_the_mechanisms_that_it_removes(tmp_path: Path) -> None:
    save_adapter(use(model("llama"), Window(3, 0), layers=[0]), tmp_path)
    other = use(model("llama"), LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True))
    load_adapter(other, tmp_path)
    wanted = use(model("llama"), Window(3, 0), layers=[0])
    assert torch.equal(hidden(other, tokens()), hidden(wanted, tokens()))


def small_t5() -> Any:
    torch.manual_seed(1)
    sizes = {"vocab_size": 40, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    config = transformers.T5Config(num_layers=2, **sizes)
    return transformers.T5EncoderModel(config).eval()


@pytest.mark.parametrize("kind", ["t5", "mpnet", "bert"])
def test_models_are_pickled_with_their_mechanisms(kind: str) -> None:
    made = use(small_t5() if kind == "t5" else model(kind), Window(3, 3))
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    for copy in (again, deepcopy(made)):
        assert torch.equal(hidden(copy, tokens()), hidden(made, tokens()))
