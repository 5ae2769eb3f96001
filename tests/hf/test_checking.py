"""A model before and after a change of its attention."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan import hf
from longspan.hf.checking import Check, Cost, LogitDrift, check
from longspan.hf.layers import attention_layers
from longspan.nn import LearnedWindow
from longspan.patterns import Full, Window

from .tiny import VOCAB, hidden, model, padding, tokens, transformers

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")


def state_of(made: Any) -> Any:
    names = [name for name, _ in made.named_modules()]
    modes = [part.training for part in made.modules()]
    return names, modes, made.config._attn_implementation, sorted(made.state_dict())


def test_the_same_attention_changes_nothing() -> None:
    made = model("bert", implementation="sdpa")
    found = check(made, Full(), [tokens()], repeats=1)
    assert found.error < 1e-5
    assert float(found.cosine.min()) > 1 - 1e-6
    assert found.logits is None
    assert found.cosine.numel() == tokens().numel()
    assert found.before.tokens_per_second > 0 and found.after.tokens_per_second > 0


def test_drift_is_that_of_real_tokens() -> None:
    made = model("bert", implementation="sdpa")
    batch = {"input_ids": tokens(), "attention_mask": padding("right")}
    found = check(made, Window(2, 2), [batch], repeats=1)
    with torch.no_grad():
        was = hidden(made, batch["input_ids"], batch["attention_mask"])
        hf.use(made, Window(2, 2))
        now = hidden(made, batch["input_ids"], batch["attention_mask"])
    real = batch["attention_mask"].bool()
    was, now = was[real].double(), now[real].double()
    assert found.error == pytest.approx(float((now - was).norm() / was.norm()))
    assert found.error > 0.01
    torch.testing.assert_close(found.cosine, torch.cosine_similarity(was, now, dim=-1))
    assert found.position.tolist() == [*range(19), *range(13)]


def test_logits_of_tokens() -> None:
    made = model("llama", implementation="sdpa", writes=True)
    ids = tokens()
    found = check(made, Window(3, 0), [ids[:1], ids[1:]], repeats=1).logits
    with torch.no_grad():
        was = made(ids).logits.double().flatten(0, 1)
        hf.use(made, Window(3, 0))
        now = made(ids).logits.double().flatten(0, 1)
    assert found is not None
    assert found.error == pytest.approx(float((now - was).norm() / was.norm()), rel=1e-4)
    kl = torch.nn.functional.kl_div(
        now.log_softmax(-1), was.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert found.divergence == pytest.approx(float(kl), rel=1e-3)
    assert found.agreement == pytest.approx(
        float((was.argmax(-1) == now.argmax(-1)).double().mean())
    )
    assert 0 < found.agreement < 1


def test_logits_of_a_text() -> None:
    torch.manual_seed(0)
    config = model("bert").config
    made = transformers.BertForSequenceClassification(config)
    found = check(made, Full(), [tokens()], repeats=1)
    assert found.logits is not None
    assert found.logits.agreement == 1 and found.logits.divergence == pytest.approx(0, abs=1e-9)
    assert found.cosine.numel() == tokens().numel()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_the_model_is_as_it_was(training: bool, used: bool) -> None:
    made = model("bert", implementation="sdpa").train(training)
    made.encoder.layer[0].eval()
    ids = tokens()
    if used:
        hf.use(made, LearnedWindow(32, 4, mean_reach=2, max_reach=4))
    before, own = state_of(made), {name: x.clone() for name, x in made.state_dict().items()}
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6)
    check(made, lambda layer: window if layer else Window(1, 1), [ids], repeats=1)
    assert state_of(made) == before
    assert all(torch.equal(x, own[name]) for name, x in made.state_dict().items())
    if used:
        hf.restore(made)
        assert made.config._attn_implementation == "sdpa"
    else:
        with pytest.raises(ValueError, match="nothing of `use` to undo"):
            hf.restore(made)


def test_the_model_is_as_it_was_when_something_fails() -> None:
    made = model("bert", implementation="sdpa").train()
    before = state_of(made)
    with pytest.raises(IndexError):
        check(made, Window(1, 1), [tokens(), torch.full((1, 3), VOCAB)])
    assert state_of(made) == before
    with pytest.raises(TypeError, match="must be a pattern"):
        check(made, lambda layer: 3, [tokens()])  # type: ignore[arg-type, return-value]
    assert state_of(made) == before


def test_strings_take_a_tokenizer() -> None:
    made = model("bert")

    def tokenizer(text: str, return_tensors: str) -> dict[str, torch.Tensor]:
        assert return_tensors == "pt"
        return {"input_ids": torch.tensor([[3 + ord(letter) % 30 for letter in text]])}

    found = check(made, Window(2, 2), ["some text", "more"], tokenizer=tokenizer, repeats=1)
    assert found.cosine.numel() == 13
    with pytest.raises(ValueError, match="need tokenizer="):
        check(made, Window(2, 2), ["some text"])


def test_only_some_layers() -> None:
    made = model("bert")
    all_of_them = check(made, Window(1, 1), [tokens()], repeats=1)
    one = check(made, Window(1, 1), [tokens()], layers=[1], repeats=1)
    assert 0 < one.error < all_of_them.error


def test_bad_texts() -> None:
    made = model("bert")
    with pytest.raises(ValueError, match="at least one text, got none"):
        check(made, Full(), [])
    with pytest.raises(TypeError, match=r"input_ids, a tensor \(batch, tokens\)"):
        check(made, Full(), [torch.zeros(3, dtype=torch.int64)])
    with pytest.raises(ValueError, match="repeats"):
        check(made, Full(), [tokens()], repeats=0)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_memory_is_at_least_that_of_all_scores() -> None:
    """Eager attention holds the scores of all pairs of one layer; a window never does."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=2048,
        attn_implementation="eager",
    )
    found = check(transformers.BertModel(config), Window(4, 4), [tokens(1, 2048)], repeats=1)
    scores = 4 * 2048 * 2048 * 4
    assert found.before.peak is not None and found.after.peak is not None
    assert found.before.peak > 0.9 * scores
    assert found.after.peak < 0.5 * scores


def made_check(peak: int | None = 2**20, logits: LogitDrift | None = None) -> Check:
    return Check(
        torch.linspace(1, 0.5, 100, dtype=torch.float64),
        torch.arange(100),
        0.25,
        logits,
        Cost(1000.0, None if peak is None else 4 * peak),
        Cost(2500.0, peak),
    )


def test_text() -> None:
    shown = str(made_check(logits=LogitDrift(0.1, 0.02, 0.975)))
    assert "100 tokens" in shown
    assert "1,000       2,500    × 2.50" in shown
    assert "4 MiB       1 MiB    × 0.25" in shown
    assert "relative error 0.2500, cosine 0.7500 in the middle, above 0.5250 for 95 %" in shown
    assert "KL 0.0200 nats, the same answer for 97.5%" in shown
    assert repr(made_check()) == "Check(tokens=100, error=0.25, faster=2.5, logits=None)"
    assert "peak" not in str(made_check(None)) and "logits" not in str(made_check())


@pytest.mark.parametrize("peak", [None, 2**20])
def test_picture(peak: int | None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made_check(peak).save_picture(tmp_path / "check.svg")
    text = (tmp_path / "check.svg").read_text()
    assert text.count('id="axes_') == (2 if peak is None else 3)
    with pytest.raises(ValueError, match="must end in"):
        made_check().save_picture(tmp_path / "check.gif")


def test_a_notebook_shows_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    shown = made_check()._repr_svg_()
    assert shown is not None and shown.startswith("<?xml") and shown.count('id="axes_') == 3
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert made_check()._repr_svg_() is None


def test_no_hook_is_left() -> None:
    made = model("bert")
    check(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6), [tokens()])
    assert not any(part._forward_pre_hooks for part in made.modules())
    hf.use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6))
    before = hidden(made, tokens())
    check(made, Window(2, 2), [tokens()])
    assert torch.equal(hidden(made, tokens()), before)
    assert all(layer._forward_pre_hooks for layer in attention_layers(made))


def test_a_model_that_calls_its_parts() -> None:
    made = transformers.OPTForCausalLM(
        transformers.OPTConfig(
            vocab_size=40,
            hidden_size=32,
            word_embed_proj_dim=32,
            num_hidden_layers=2,
            ffn_dim=48,
            num_attention_heads=4,
            max_position_embeddings=48,
            pad_token_id=0,
        )
    ).eval()
    found = check(made, Window(2, 0), [tokens()])
    assert found.error > 0 and found.logits is not None
