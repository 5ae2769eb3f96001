"""BERT's encoder with learned windows, with its own attention, and with none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ... import hf
from ...measure import Size
from ...nn import LearnedWindow, Mechanism, Setting
from ...nn.mechanism import NO_SETTING
from ..contenders import Contender, Work, installed
from ..problem import Problem, Results
from ..records import Figure

__all__ = ["CEILING", "OURS", "THEIRS", "NoAttention", "beside_full", "encoder"]

MEAN_REACH, MAX_REACH = 64, 256
OURS, THEIRS, CEILING = "longspan, learned windows", "SDPA", "no attention"


def encoder(
    length: int,
    target: float,
    *,
    layers: int = 12,
    quick: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    compiler: str | None = None,
) -> Problem:
    """BERT-base, random weights, at one length: forward and backward.

    Args:
        length: tokens of one text.
        target: how many times faster than with SDPA it is to be.
        layers: of the encoder.
        quick: a small one.
        device: where it runs.
        dtype: of weights and activations.
        compiler: a backend of `torch.compile`, which each layer goes through; None for none.
    """
    size = Size(heads=12, length=length, head_dim=64, dtype=dtype)
    if quick:
        size, layers = Size(heads=2, length=256, head_dim=16, dtype=dtype), min(layers, 2)
    title = f"BERT's encoder, {layers} layers, {size.length:,} tokens"

    def contender(name: str, change: Callable[[Any, Size], None]) -> Contender:
        def make(size: Size) -> Work:
            return _work(size, layers, change, device, compiler)

        return Contender(name=name, size=size, make=make, forward=False)

    return beside_full(
        f"encoder-{length}",
        title,
        MEAN_REACH,
        target,
        contender(OURS, _learned),
        contender(THEIRS, lambda model, size: model.set_attn_implementation("sdpa")),
        contender(CEILING, lambda model, size: hf.use(model, NoAttention())),
    )


def beside_full(
    name: str,
    title: str,
    reach: int,
    target: float,
    ours: Contender,
    theirs: Contender,
    ceiling: Contender,
) -> Problem:
    """A model with learned windows beside the same with full attention, and with none."""

    def judge(results: Results) -> list[Figure]:
        return [
            results.figure(
                f"{title}: learned windows, {reach} each side on average, beside SDPA",
                "× faster",
                (None, results.ratio(THEIRS, OURS)[1]),
                (None, target),
                at_least=True,
                of=(OURS, THEIRS),
            ),
            results.figure(
                "  ceiling: no attention at all, beside SDPA",
                "× faster",
                (None, results.ratio(THEIRS, CEILING)[1]),
                of=(CEILING, THEIRS),
            ),
        ]

    return Problem(
        name=name, title=title, ours=(ours,), peers=(theirs, ceiling), judge=judge, wall=True
    )


def _learned(model: Any, size: Size) -> None:
    """Learned windows in every layer. Their reaches are spread as trained ones are: nine of ten
    tokens look from 20 to 140 tokens to each side.
    """
    window = LearnedWindow(
        size.heads * size.head_dim, size.heads, mean_reach=MEAN_REACH, max_reach=MAX_REACH
    )
    with torch.no_grad():
        window.U_d.normal_(std=0.15, generator=torch.Generator().manual_seed(0))
    hf.use(model, window)


def _work(
    size: Size,
    layers: int,
    change: Callable[[Any, Size], None],
    device: str,
    compiler: str | None,
) -> Work:
    transformers = installed("transformers")
    width = size.heads * size.head_dim
    config = transformers.BertConfig(
        vocab_size=128,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * width,
        max_position_embeddings=size.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config, add_pooling_layer=False).train()
    change(model, size)
    model.to(device, size.dtype)
    if compiler is not None:
        # Layer by layer: all of them share what was compiled for the first.
        for layer in model.encoder.layer:
            layer.compile(backend=compiler, dynamic=False)
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(128, (size.batch, size.length), generator=source).to(device)

    def forward() -> Tensor:
        # Without the model around it, which makes masks of no padding while a graph is captured.
        found: Tensor = model.encoder(model.embeddings(input_ids=ids)).last_hidden_state
        return found

    return Work(forward=forward, leaves=tuple(model.parameters()), graph=device == "cuda")


class _Values(torch.autograd.Function):
    """Values as they are. Queries and keys have gradients too, for their projections are there
    whatever attention does with them.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return v.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return grad, grad, grad


class NoAttention(Mechanism):
    """Every token sees itself alone, at no cost: what is left is the rest of a model."""

    @property
    def causal(self) -> bool:
        return True

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        found: Tensor = _Values.apply(q, k, v)
        return found
