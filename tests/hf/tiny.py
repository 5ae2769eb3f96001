"""Small random models of transformers, made from configs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers")

VOCAB = 40
PAD = 0

BERTS = ("bert", "roberta", "distilbert", "modernbert")
DECODERS = ("gpt2", "llama", "mistral")
# Those that go through transformers' AttentionInterface, and those that `use` knows.
KINDS = (*BERTS, *DECODERS)
USABLE = (*KINDS, "mpnet")

SHARED: dict[str, Any] = dict(vocab_size=VOCAB, pad_token_id=PAD, bos_token_id=1, eos_token_id=2)
USUAL: dict[str, Any] = dict(
    SHARED,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=48,
)


def config(kind: str) -> Any:
    t = transformers
    if kind == "bert":
        return t.BertConfig(**USUAL)
    if kind == "roberta":
        return t.RobertaConfig(**{**USUAL, "pad_token_id": 1, "max_position_embeddings": 50})
    if kind == "mpnet":
        return t.MPNetConfig(**{**USUAL, "pad_token_id": 1, "max_position_embeddings": 50})
    if kind == "distilbert":
        return t.DistilBertConfig(
            **SHARED, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=48
        )
    if kind == "modernbert":
        # The first layer sees all, the second four tokens to each side.
        return t.ModernBertConfig(
            **USUAL, cls_token_id=1, sep_token_id=2, local_attention=8, global_attn_every_n_layers=2
        )
    if kind == "gpt2":
        return t.GPT2Config(**SHARED, n_embd=32, n_layer=2, n_head=4, n_positions=48)
    if kind == "llama":
        return t.LlamaConfig(**USUAL, num_key_value_heads=2)
    if kind == "mistral":
        return t.MistralConfig(**USUAL, num_key_value_heads=2, sliding_window=5, head_dim=8)
    raise ValueError(kind)


def model(kind: str, *, implementation: str = "eager", writes: bool = False) -> Any:
    """One of these kinds; the same weights at every call. Weights are large, so that attention is
    far from even.
    """
    torch.manual_seed(1)
    auto = transformers.AutoModelForCausalLM if writes else transformers.AutoModel
    made = auto.from_config(config(kind), attn_implementation=implementation)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def tokens(batch: int = 2, length: int = 19) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(3, VOCAB, (batch, length), generator=generator)


def padding(side: str, batch: int = 2, length: int = 19, missing: int = 6) -> Tensor:
    """1 for real tokens; the last sample has fewer of them."""
    mask = torch.ones(batch, length, dtype=torch.long)
    if side == "right":
        mask[-1, length - missing :] = 0
    elif side == "left":
        mask[-1, :missing] = 0
    return mask


def hidden(made: Any, ids: Tensor, mask: Tensor | None = None, **more: Any) -> Tensor:
    return made(input_ids=ids, attention_mask=mask, **more).last_hidden_state


def band(length: int, left: int, right: int) -> Tensor:
    """All pairs of a window, written out, (1, 1, N, N)."""
    away = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    return ((away >= -left) & (away <= right))[None, None]


def same_gradients(found: Any, wanted: Any) -> None:
    """Of all parameters of two models, to 1e-5 of the largest entry where that is above 1."""
    compared = 0
    for (name, a), b in zip(wanted.named_parameters(), found.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            scale = max(1.0, float(a.grad.abs().max()))
            torch.testing.assert_close(b.grad / scale, a.grad / scale, atol=1e-5, rtol=1e-5)
            compared += 1
    assert compared > 10


def additive(allowed: Tensor) -> Tensor:
    """As eager attention takes it."""
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(allowed.shape).masked_fill(~allowed, lowest)
