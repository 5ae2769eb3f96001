"""Projections around a mechanism: self- and cross-attention, and errors that name the cure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longspan.nn import (
    Attention,
    LearnedWindow,
    Mechanism,
    MultiheadAttention,
    Setting,
    SlidingWindow,
)
from longspan.nn.mechanism import NO_SETTING
from longspan.patterns import Window

from .naive import attend, gradients, join, real_tokens, split

E, H = 8, 4


def layer_of(mechanism: Mechanism | None = None, **options: Any) -> MultiheadAttention:
    return MultiheadAttention(E, H, mechanism or Attention(), **options).double()


def input_of(batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, E, dtype=torch.float64, requires_grad=True)


def projected(layer: MultiheadAttention, x: Tensor, memory: Tensor) -> list[Tensor]:
    size = E // H
    return [
        split(layer.q_proj(x), size),
        split(layer.k_proj(memory), size),
        split(layer.v_proj(memory), size),
    ]


@pytest.mark.parametrize("key_heads", [None, 1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_self_attention(key_heads: int | None, bias: bool) -> None:
    layer, x = layer_of(key_heads=key_heads, bias=bias), input_of(2, 5)
    real = real_tokens(5, 3, n=5)
    sees = lambda b, h, i, j: bool(real[b, j])  # noqa: E731
    expected = layer.out_proj(join(attend(*projected(layer, x, x), sees)))
    y = layer(x, key_padding=real)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    found, wanted = (gradients(out, x, layer) for out in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)
    assert any("bias" in name for name in layer.state_dict()) == bias


@pytest.mark.parametrize("m", [1, 3, 7])
def test_cross_attention(m: int) -> None:
    layer, x, memory = layer_of(key_heads=2), input_of(2, 5), input_of(2, m)
    real = real_tokens(m, (m + 1) // 2, n=m)
    sees = lambda b, h, i, j: bool(real[b, j])  # noqa: E731
    expected = layer.out_proj(join(attend(*projected(layer, x, memory), sees)))
    y = layer(x, memory, key_padding=real)
    assert y.shape == x.shape
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    for leaf in (x, memory):
        found, wanted = (gradients(out, leaf, layer) for out in (y, expected))
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_as_torch_does() -> None:
    theirs = nn.MultiheadAttention(E, H, batch_first=True).double()
    layer = layer_of()
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    with torch.no_grad():
        for own, weight, bias in zip(
            (layer.q_proj, layer.k_proj, layer.v_proj), weights, biases, strict=True
        ):
            own.weight.copy_(weight)
            own.bias.copy_(bias.uniform_())
    layer.out_proj.load_state_dict(theirs.out_proj.state_dict())
    x, memory, real = input_of(2, 5), input_of(2, 6), real_tokens(6, 4, n=6)
    wanted = theirs(x, memory, memory, key_padding_mask=~real, need_weights=False)[0]
    torch.testing.assert_close(layer(x, memory, key_padding=real), wanted, rtol=1e-9, atol=1e-10)


class Recorder(Mechanism):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Setting] = []
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, q: Tensor, k: Tensor, v: Tensor, setting: Setting = NO_SETTING) -> Tensor:
        self.told.append(setting)
        self.shapes += [tuple(t.shape) for t in (q, k, v)]
        return q


def test_tells_the_mechanism_everything() -> None:
    recorder = Recorder()
    layer, x = layer_of(recorder, key_heads=2, dropout=0.25), input_of(3, 5)
    real, marks = real_tokens(5, 4, 1, n=5), real_tokens(1, 0, 1, n=5)
    layer(x, key_padding=real, global_tokens=marks)
    (setting,) = recorder.told
    assert setting.x is x and setting.key_padding is real and setting.global_tokens is marks
    assert setting.dropout == 0.25
    assert recorder.shapes == [(3, H, 5, 2), (3, 2, 5, 2), (3, 2, 5, 2)]


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda: Attention(Window(2, 2)),
        lambda: SlidingWindow(E, H, left=2),
        lambda: LearnedWindow(E, H, mean_reach=2, max_reach=4),
    ],
)
def test_padding_and_the_batch_change_nothing(mechanism: Any) -> None:
    layer = MultiheadAttention(E, H, mechanism())
    x = torch.randn(2, 7, E)
    together = layer(x)
    more = torch.cat([x, 100 * torch.randn(2, 4, E)], dim=1)
    padded = layer(more, key_padding=real_tokens(7, 7, n=11))
    torch.testing.assert_close(padded[:, :7], together, rtol=0, atol=1e-6)
    torch.testing.assert_close(layer(x[1:]), together[1:], rtol=0, atol=1e-6)


def test_state_dict_round_trip() -> None:
    layer, other = layer_of(key_heads=2), layer_of(key_heads=2)
    x = input_of(1, 3)
    assert not torch.equal(layer(x), other(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))


def test_dropout_only_in_training() -> None:
    layer, x = layer_of(dropout=0.5), input_of(2, 6)
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.allclose(layer(x), layer(x))


def test_under_autocast() -> None:
    layer = MultiheadAttention(E, H, SlidingWindow(E, H, left=1))
    x, marks = torch.randn(2, 5, E), real_tokens(1, 2, n=5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x, global_tokens=marks)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x, global_tokens=marks), rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"embed_dim": 0}, ValueError, "MultiheadAttention: embed_dim .*0"),
        ({"num_heads": 3}, ValueError, "embed_dim must be a multiple of num_heads, got 8 and 3"),
        ({"key_heads": 3}, ValueError, "num_heads must be a multiple of key_heads, got 4 and 3"),
        ({"key_heads": 0}, ValueError, "key_heads .*0"),
        ({"bias": 1}, TypeError, "bias .*1"),
        ({"dropout": 1.0}, ValueError, "dropout .*1.0"),
        ({"dropout": "0"}, TypeError, "dropout .*'0'"),
        ({"mechanism": "Window(1, 1)"}, TypeError, r"mechanism must be .* or a pattern"),
        (
            {"mechanism": SlidingWindow(8, 2, left=1)},
            ValueError,
            "mechanism must be made for embed_dim=8 and num_heads=4, got num_heads=2",
        ),
        (
            {"mechanism": SlidingWindow(16, 4, left=1)},
            ValueError,
            "mechanism must be made for embed_dim=8 and num_heads=4, got head_dim=4",
        ),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"embed_dim": E, "num_heads": H, "mechanism": Attention(), **options}
    with pytest.raises(error, match=message):
        MultiheadAttention(**given)


X = torch.zeros(2, 5, E)
YES = torch.ones(2, 5).bool()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"x": X[0]}, ValueError, r"x must have 3 dimensions.*\(5, 8\)"),
        ({"x": X.long()}, TypeError, "x must be a float tensor, got an int64"),
        ({"x": None}, TypeError, "x must be a float tensor, got NoneType"),
        ({"x": X[..., :7]}, ValueError, r"x must have shape .*embed_dim 8, got .*\(2, 5, 7\)"),
        ({"memory": X[..., :7]}, ValueError, "memory must have shape"),
        ({"memory": X[:1]}, ValueError, "memory must have the batch size of x, got 1 and 2"),
        ({"memory": X, "global_tokens": YES}, ValueError, "global_tokens are of self-attention"),
        ({"key_padding": YES.long()}, TypeError, r"key_padding .*True for a real .*\.bool\(\)"),
        ({"key_padding": YES[:, :4]}, ValueError, r"key_padding .*\(2, 5\), got .*\(2, 4\)"),
        ({"global_tokens": YES.float()}, TypeError, "global_tokens .*True for a global token"),
        ({"global_tokens": YES[:1]}, ValueError, r"global_tokens .*\(2, 5\), got .*\(1, 5\)"),
    ],
)
def test_bad_calls(call: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="MultiheadAttention: " + message):
        MultiheadAttention(E, H, Attention())(**{"x": X, **call})


def test_a_pattern_is_a_mechanism() -> None:
    layers = []
    for mechanism in (Attention(Window(1, 1)), Window(1, 1)):
        torch.manual_seed(0)
        layers.append(MultiheadAttention(8, 2, mechanism))
    x = torch.randn(2, 7, 8)
    assert torch.equal(layers[0](x), layers[1](x))
