"""Learned windows whose global rows have projections of their own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import LearnedWindow, MultiheadAttention, Setting, SlidingWindow
from longspan.nn.describing import described, mechanism_from

E, H, N = 12, 3, 20

REAL = torch.ones(3, N, dtype=torch.bool)
REAL[1, 15:] = False
TOKENS = torch.zeros(3, N, dtype=torch.bool)
TOKENS[0, [2, 17]] = True
TOKENS[1, :5] = True


def layer_of(**options: Any) -> MultiheadAttention:
    torch.manual_seed(0)
    made = LearnedWindow(
        E, H, **{"mean_reach": 2, "max_reach": 6, "global_projections": True} | options
    )
    layer = MultiheadAttention(E, H, made).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5)
    return layer.eval()


def without(layer: MultiheadAttention, **options: Any) -> MultiheadAttention:
    """The same layer, whose global rows are of the layer's own q, k and v."""
    other = layer_of(**options, global_projections=False)
    other.load_state_dict(
        {name: own for name, own in layer.state_dict().items() if "_global" not in name}
    )
    return other


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (H, E // H)).transpose(1, 2)


def expected(layer: MultiheadAttention, x: Tensor, **options: Any) -> Tensor:
    """All rows but the global ones as without projections; those as the formula has them."""
    own: Any = layer.mechanism
    other = without(layer, **options)
    for name, weight in layer.named_parameters():
        if "_global" not in name:
            path, _, last = name.rpartition(".")
            part = other.get_submodule(path)
            delattr(part, last)
            setattr(part, last, weight)
    setting = Setting(x, REAL, TOKENS)
    q, k, v = (split(p(x)) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    y = other.mechanism(q, k, v, setting)
    q, k, v = (split(p(x)) for p in (own.q_global, own.k_global, own.v_global))
    scores = q @ k.mT / math.sqrt(E // H)
    rows = scores.masked_fill(~REAL[:, None, None], -torch.inf).softmax(-1) @ v
    y = torch.where(TOKENS[:, None, :, None], rows, y)
    return layer.out_proj(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"soft": True},
        {"sided": True},
        {"budget": "pairs"},
        {"pooled": True},
        {"reads": "stream", "form": "weight"},
        {"most_global": 7},
    ],
    ids=str,
)
def test_is_the_formula(options: dict[str, Any]) -> None:
    layer = layer_of(**options)
    torch.manual_seed(1)
    x = torch.randn(3, N, E, dtype=torch.float64, requires_grad=True)
    y = layer(x, key_padding=REAL, global_tokens=TOKENS)
    wanted = expected(layer, x, **options)
    torch.testing.assert_close(y[REAL], wanted[REAL], rtol=1e-9, atol=1e-10)
    leaves = [x, *layer.parameters()]
    upstream = torch.randn_like(y[REAL])
    found = torch.autograd.grad(y[REAL], leaves, upstream)
    right = torch.autograd.grad(wanted[REAL], leaves, upstream)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_the_budget_leaves_them_out() -> None:
    layer = layer_of()
    x = torch.randn(3, N, E, dtype=torch.float64)
    layer(x, key_padding=REAL, global_tokens=TOKENS)
    made: Any = layer.mechanism
    for sample in range(3):
        counted = made.last_reach[sample][:, REAL[sample] & ~TOKENS[sample]]
        assert float(counted.mean()) == pytest.approx(2, rel=1e-5)


def test_projections_start_as_copies_of_the_layers() -> None:
    own = LearnedWindow(E, H, mean_reach=2, max_reach=6, global_projections=True)
    assert own.fresh
    layer = MultiheadAttention(E, H, own)
    assert not own.fresh
    for ours, theirs in (
        (own.q_global, layer.q_proj),
        (own.k_global, layer.k_proj),
        (own.v_global, layer.v_proj),
    ):
        assert ours is not theirs
        assert torch.equal(ours.weight, theirs.weight)
    x = torch.randn(3, N, E)
    layer.eval()
    plain = without(layer).float().eval()
    torch.testing.assert_close(
        layer(x, global_tokens=TOKENS), plain(x, global_tokens=TOKENS), atol=1e-6, rtol=1e-5
    )


def test_a_call_without_global_tokens_gives_them_a_gradient_of_zero() -> None:
    layer = layer_of().train()
    layer(torch.randn(2, N, E, dtype=torch.float64)).sum().backward()
    own: Any = layer.mechanism
    assert torch.equal(own.v_global.weight.grad, torch.zeros(E, E, dtype=torch.float64))
    assert own.U_d.grad.abs().sum() > 0


def test_a_causal_window_has_no_such_rows() -> None:
    with pytest.raises(ValueError, match="a causal window may not look ahead"):
        layer_of(causal=True)


def test_they_need_the_layers_input() -> None:
    own = LearnedWindow(E, H, mean_reach=2, max_reach=6, global_projections=True)
    q = torch.randn(3, H, N, E // H)
    with pytest.raises(ValueError, match="LearnedWindow: global tokens with projections of their"):
        own(q, q, q, Setting(global_tokens=TOKENS))


def test_is_described_and_made_again() -> None:
    own = LearnedWindow(E, H, mean_reach=2, max_reach=6, global_projections=True)
    made = mechanism_from(described(own))
    assert isinstance(made, LearnedWindow) and made.global_projections
    assert made.state_dict().keys() == own.state_dict().keys()
    assert "global_projections=True" in repr(own)


def test_a_frozen_network_is_taken_without_projections() -> None:
    source = LearnedWindow(E, H, mean_reach=4, max_reach=12)
    own = LearnedWindow(E, H, mean_reach=2, max_reach=6, global_projections=True)
    own.load_reach(source)
    frozen = {name for name, weight in own.named_parameters() if not weight.requires_grad}
    assert frozen == {"W_p", "U_d"}


def test_both_windows_have_the_same_rows() -> None:
    torch.manual_seed(3)
    x = torch.randn(3, N, E)
    learned = layer_of().float()
    window = SlidingWindow(E, H, left=1)
    fixed = MultiheadAttention(E, H, window).eval()
    weights = {
        name: own
        for name, own in learned.state_dict().items()
        if name.split(".")[-1] not in ("W_p", "U_d", "factor")
    }
    fixed.load_state_dict(weights)
    found, other = (layer(x, global_tokens=TOKENS) for layer in (learned, fixed))
    torch.testing.assert_close(found[TOKENS], other[TOKENS], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(found[~TOKENS], other[~TOKENS])
