"""The sliding window against Longformer's formula, and what must never change its outputs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longspan.nn import (
    MultiheadAttention,
    Setting,
    SlidingWindow,
    global_rows,
    global_tokens,
)
from longspan.patterns import PerHead, Window
from longspan.weights import Alibi

from .naive import attend, gradients, join, real_tokens, split

E, H = 12, 3


def layer_of(key_heads: int | None = None, **options: Any) -> MultiheadAttention:
    """A layer in float64 whose global projections differ from the local ones."""
    layer = MultiheadAttention(E, H, SlidingWindow(E, H, **options), key_heads=key_heads).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5)
    return layer


def input_of(batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, E, dtype=torch.float64, requires_grad=True)


def per_head(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value] * H


def naive(
    layer: MultiheadAttention,
    x: Tensor,
    left: int | list[int],
    right: int | list[int],
    dilation: int | list[int] = 1,
    real: Tensor | None = None,
    tokens: Tensor | None = None,
) -> Tensor:
    """Longformer's formula, row by row."""
    size = E // H
    real = torch.ones(x.shape[:2], dtype=torch.bool) if real is None else real
    tokens = torch.zeros(x.shape[:2], dtype=torch.bool) if tokens is None else tokens
    lefts, rights, steps = per_head(left), per_head(right), per_head(dilation)
    own: Any = layer.mechanism

    def sees(b: int, h: int, i: int, j: int) -> bool:
        whole, rest = divmod(j - i, steps[h])
        near = rest == 0 and -lefts[h] <= whole <= rights[h]
        return bool(real[b, j] and (near or tokens[b, j]))

    def sees_all(b: int, h: int, i: int, j: int) -> bool:
        return bool(real[b, j] and (tokens[b, i] or sees(b, h, i, j)))

    local = [split(p(x), size) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    if own.global_projections:
        y = attend(*local, sees)
        wide = [split(p(x), size) for p in (own.q_global, own.k_global, own.v_global)]
        whole = attend(*wide, lambda b, h, i, j: bool(real[b, j]))
        y = torch.where((tokens & real)[:, None, :, None], whole, y)
    else:
        y = attend(*local, sees_all)
    return layer.out_proj(join(y))


def check(
    layer: MultiheadAttention, x: Tensor, expected: Tensor, rows: Tensor, **call: Any
) -> None:
    """Outputs and gradients of the real rows agree with the formula's."""
    y = layer(x, **call)
    assert y.shape == x.shape
    keep = rows[..., None]
    torch.testing.assert_close(y * keep, expected * keep, rtol=1e-9, atol=1e-10)
    found = gradients(y * keep, x, layer)
    wanted = gradients(expected * keep, x, layer)
    for name, grad in found.items():
        torch.testing.assert_close(grad, wanted[name], rtol=1e-8, atol=1e-9, msg=name)


GLOBAL = torch.tensor([[1, 0, 0, 0, 1, 0, 0], [0] * 7, [0, 0, 0, 1, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    "window",
    [
        {"left": 2, "right": 2},
        {"left": 0, "right": 3},
        {"left": 2, "right": 1, "dilation": 2},
        {"left": [0, 1, 6], "right": 1},
        {"left": [1, 2, 1], "right": [0, 2, 1], "dilation": [1, 1, 3]},
    ],
    ids=str,
)
@pytest.mark.parametrize("tokens", [None, GLOBAL], ids=["local", "global"])
@pytest.mark.parametrize("own", [True, False], ids=["own projections", "shared projections"])
def test_is_the_formula(window: dict[str, Any], tokens: Tensor | None, own: bool) -> None:
    layer, x = layer_of(**window, global_projections=own), input_of(3, 7)
    real = real_tokens(7, 7, 5, n=7)
    expected = naive(layer, x, **window, real=real, tokens=tokens)
    check(layer, x, expected, real, key_padding=real, global_tokens=tokens)


@pytest.mark.parametrize("key_heads", [1, 3])
def test_grouped_queries(key_heads: int) -> None:
    layer, x = layer_of(key_heads, left=1), input_of(3, 7)
    expected = naive(layer, x, 1, 1, tokens=GLOBAL)
    check(layer, x, expected, torch.ones(3, 7).bool(), global_tokens=GLOBAL)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("marked", [0, 1])
def test_any_length(n: int, marked: int) -> None:
    layer, x = layer_of(left=2), input_of(1, n)
    tokens = torch.arange(n)[None] < marked
    expected = naive(layer, x, 2, 2, tokens=tokens)
    check(layer, x, expected, torch.ones(1, n).bool(), global_tokens=tokens)


def test_right_is_left_unless_it_is_given() -> None:
    assert SlidingWindow(E, H, left=2).window == Window(2, 2)
    assert SlidingWindow(E, H, left=2, causal=True).window == Window(2, 0)
    assert SlidingWindow(E, H, left=2, right=5).window == Window(2, 5)
    assert SlidingWindow(E, H, left=[1, 2, 2], causal=True).window == PerHead(
        [Window(1, 0), Window(2, 0), Window(2, 0)]
    )


@pytest.mark.parametrize("own", [True, False])
def test_padding_changes_no_real_token(own: bool) -> None:
    layer = layer_of(left=1, dilation=2, global_projections=own).float()
    x = torch.randn(3, 7, E)
    alone = layer(x, global_tokens=GLOBAL)
    more = torch.cat([x, 100 * torch.randn(3, 4, E)], dim=1)
    # Marks on tokens that do not exist mean nothing.
    tokens = torch.cat([GLOBAL, torch.ones(3, 4).bool()], dim=1)
    padded = layer(more, key_padding=real_tokens(7, 7, 7, n=11), global_tokens=tokens)
    torch.testing.assert_close(padded[:, :7], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("own", [True, False])
def test_nor_does_padding_at_the_start(own: bool) -> None:
    layer = layer_of(left=1, dilation=2, global_projections=own).float()
    x = torch.randn(3, 7, E)
    more = torch.cat([100 * torch.randn(3, 4, E), x], dim=1)
    tokens = torch.cat([torch.zeros(3, 4).bool(), GLOBAL], dim=1)
    padded = layer(more, key_padding=real_tokens(7, 7, 7, n=11).flip(1), global_tokens=tokens)
    torch.testing.assert_close(padded[:, 4:], layer(x, global_tokens=GLOBAL), rtol=0, atol=1e-6)


@pytest.mark.parametrize("own", [True, False])
def test_samples_do_not_know_each_other(own: bool) -> None:
    layer, x = layer_of(left=1, global_projections=own), input_of(3, 7)
    real = real_tokens(7, 4, 6, n=7)
    together = layer(x, key_padding=real, global_tokens=GLOBAL)
    for b in range(3):
        one = slice(b, b + 1)
        alone = layer(x[one], key_padding=real[one], global_tokens=GLOBAL[one])
        torch.testing.assert_close(together[one], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most", [2, 5, 50])
def test_a_given_maximum_changes_nothing(most: int) -> None:
    layer, x = layer_of(left=1, most_global=most), input_of(3, 7)
    free = deepcopy(layer)
    free.mechanism.most_global = None
    got, wanted = layer(x, global_tokens=GLOBAL), free(x, global_tokens=GLOBAL)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_more_global_tokens_than_the_maximum_raise() -> None:
    with pytest.raises(ValueError, match="most_global is 1, but a sample has 2"):
        layer_of(left=1, most_global=1)(input_of(3, 7), global_tokens=GLOBAL)


def test_compiles_whole_with_a_given_maximum() -> None:
    layer, x = layer_of(left=1, most_global=2), input_of(3, 7)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    got = compiled(x, global_tokens=GLOBAL)
    torch.testing.assert_close(got, layer(x, global_tokens=GLOBAL), rtol=1e-12, atol=1e-12)


def test_rows_beyond_the_maximum_are_never_silently_local(monkeypatch: Any) -> None:
    """Where the count is not read, as on a GPU."""
    layer, x = layer_of(left=1, most_global=1), input_of(3, 7)
    monkeypatch.setattr(global_tokens, "_largest", lambda tokens: 0)
    rows = layer(x, global_tokens=GLOBAL).isnan().any(-1)
    assert rows.nonzero().tolist() == [[0, 4]]


def few_and_many(
    layer: MultiheadAttention, x: Tensor, monkeypatch: pytest.MonkeyPatch, **call: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and gradients, from the input itself and from projections of all tokens."""
    seen: list[int] = []
    watched = layer.mechanism._from_input

    def counted(*args: Any) -> Tensor:
        seen.append(1)
        return watched(*args)

    monkeypatch.setattr(layer.mechanism, "_from_input", counted)
    found = []
    for factor in (0, 10**6):
        monkeypatch.setattr(global_rows, "FEW", factor)
        y = layer(x, **call)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])])
    assert seen == [1]
    return found[0], found[1]


@pytest.mark.parametrize("key_heads", [1, 3])
@pytest.mark.parametrize("marked", [[[0], [4, 6]], [[], [2]]])
def test_few_global_rows_are_those_of_all_projections(
    key_heads: int, marked: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = layer_of(key_heads, left=1), input_of(2, 9)
    tokens = torch.zeros(2, 9, dtype=torch.bool)
    for sample, places in enumerate(marked):
        tokens[sample, places] = True
    real = real_tokens(9, 7, n=9)
    few, many = few_and_many(layer, x, monkeypatch, global_tokens=tokens, key_padding=real)
    for one, other in zip(few, many, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_dropout_of_few_global_rows_drops_their_bias_too() -> None:
    """Where all tokens are the same, what is left of a row is one share of all its channels."""
    layer = layer_of(left=0).train()
    layer.dropout = 0.5
    layer.out_proj = nn.Identity()
    x = input_of(1, 1).expand(1, 40, E)
    tokens = torch.zeros(1, 40, dtype=torch.bool)
    tokens[:, 0] = True
    own: Any = layer.mechanism
    assert own._few(x, 1)
    whole = own.v_global(x[0, 0]).view(H, -1)
    shares = layer(x, global_tokens=tokens)[0, 0].view(H, -1) / whole
    torch.testing.assert_close(shares, shares[:, :1].expand_as(shares))
    assert shares[:, 0].unique().numel() == H
    assert 0.3 < float(shares.detach().mean()) < 1.7


def test_a_projection_that_is_watched_or_changed_is_called(monkeypatch: Any) -> None:
    layer, x = layer_of(left=1), input_of(1, 9)
    own: Any = layer.mechanism
    assert own._few(x, 1)
    handle = own.v_global.register_forward_hook(lambda *_: None)
    assert not own._few(x, 1)
    handle.remove()
    own.k_global = nn.Sequential(own.k_global)
    assert not own._few(x, 1)


def test_no_global_token_costs_no_projection() -> None:
    layer, x = layer_of(left=1), input_of(2, 5)
    calls: list[nn.Module] = []
    for projection in (layer.mechanism.q_global, layer.mechanism.k_global):
        projection.register_forward_hook(lambda module, *_: calls.append(module))
    layer(x)
    layer(x, global_tokens=torch.zeros(2, 5).bool())
    assert calls == []
    layer(x, global_tokens=torch.ones(2, 5).bool())
    assert len(calls) == 2


def test_only_global_rows_are_projected_anew() -> None:
    layer, x = layer_of(left=1), input_of(3, 7)
    shapes: list[torch.Size] = []
    layer.mechanism.q_global.register_forward_hook(
        lambda _, given, __: shapes.append(given[0].shape)
    )
    layer(x, global_tokens=GLOBAL)
    assert shapes == [torch.Size([3, 2, E])]


def test_projections_start_as_copies() -> None:
    layer = MultiheadAttention(E, H, SlidingWindow(E, H, left=1), key_heads=1)
    own: Any = layer.mechanism
    for mine, local in (
        (own.q_global, layer.q_proj),
        (own.k_global, layer.k_proj),
        (own.v_global, layer.v_proj),
    ):
        assert torch.equal(mine.weight, local.weight) and mine.weight is not local.weight
        assert torch.equal(mine.bias, local.bias) and mine.bias is not local.bias
    with torch.no_grad():
        layer.q_proj.weight.zero_()
    assert own.q_global.weight.any()


@pytest.mark.parametrize("told", ["copied", "loaded"])
def test_projections_that_were_set_before_are_kept(told: str) -> None:
    before, made = SlidingWindow(E, H, left=2), SlidingWindow(E, H, left=2)
    if told == "copied":
        made.copy_projections(before.q_global, before.k_global, before.v_global)
    else:
        made.load_state_dict(before.state_dict())
    layer = MultiheadAttention(E, H, made)
    layer.copy_projections()
    for name, own in before.state_dict().items():
        assert torch.equal(layer.mechanism.state_dict()[name], own)


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("tokens", [None, torch.zeros(2, 6, dtype=torch.bool)])
def test_projections_without_global_tokens_have_a_gradient_of_zero(
    tokens: Tensor | None, most: int | None
) -> None:
    """What gathers gradients would wait for those that are None."""
    layer, x = layer_of(left=2, most_global=most), input_of(2, 6)
    y = layer(x, global_tokens=tokens)
    assert torch.equal(y, layer.eval()(x, global_tokens=tokens))
    y.sum().backward()
    for own in layer.mechanism.parameters():
        assert own.grad is not None and not own.grad.any()


def test_projections_that_do_not_learn_have_no_gradient() -> None:
    layer, x = layer_of(left=2), input_of(2, 6)
    layer.requires_grad_(False)
    layer(x).sum().backward()
    assert all(own.grad is None for own in layer.parameters())
    with torch.no_grad():
        assert not layer.requires_grad_()(x).requires_grad


def test_state_dict_round_trip() -> None:
    layer, other = layer_of(1, left=[0, 1, 2]), layer_of(1, left=[0, 1, 2])
    x = input_of(3, 7)
    assert not torch.equal(layer(x, global_tokens=GLOBAL), other(x, global_tokens=GLOBAL))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x, global_tokens=GLOBAL), other(x, global_tokens=GLOBAL))
    assert "mechanism.k_global.weight" in layer.state_dict()


def test_a_causal_window_never_looks_ahead() -> None:
    layer = layer_of(left=[1, 2, 3], dilation=[1, 1, 2], causal=True)
    assert layer.mechanism.causal and layer.mechanism.remembers == 7
    x = input_of(1, 9)
    changed = torch.cat([x[:, :5], torch.randn(1, 4, E, dtype=torch.float64)], dim=1)
    assert torch.equal(layer(x)[:, :5], layer(changed)[:, :5])
    expected = naive(layer, x, [1, 2, 3], 0, [1, 1, 2])
    check(layer, x, expected, torch.ones(1, 9).bool())


def test_a_window_that_may_have_global_tokens_is_not_causal() -> None:
    window = SlidingWindow(E, H, left=3, right=0)
    assert not window.causal and window.remembers is None


def test_dropout_only_in_training() -> None:
    layer, x = layer_of(left=2), input_of(3, 7)
    layer.dropout = 0.5
    plain = layer.eval()(x, global_tokens=GLOBAL)
    assert torch.equal(plain, layer(x, global_tokens=GLOBAL))
    layer.train()
    dropped = layer(x, global_tokens=GLOBAL)
    assert not torch.allclose(plain[0, 0], dropped[0, 0])  # a global row
    assert not torch.allclose(plain[1, 0], dropped[1, 0])  # a local one


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"left": -1}, ValueError, "SlidingWindow: left .*-1"),
        ({"left": 1.5}, TypeError, "SlidingWindow: left .*1.5"),
        ({"left": [1, 2]}, ValueError, "SlidingWindow: left .*3 heads, got 2"),
        ({"left": [1, 2, -3]}, ValueError, "SlidingWindow: left .*-3"),
        ({"left": 1, "dilation": 0}, ValueError, "SlidingWindow: dilation .*0"),
        ({"left": 1, "right": 2, "causal": True}, ValueError, "right must be 0 in a causal"),
        ({"left": 1, "most_global": 0}, ValueError, "SlidingWindow: most_global .*0"),
        ({"left": 1, "causal": 1}, TypeError, "SlidingWindow: causal .*1"),
    ],
    ids=str,
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SlidingWindow(E, H, **options)


def test_heads_must_divide_channels() -> None:
    with pytest.raises(ValueError, match="embed_dim must be a multiple of num_heads"):
        SlidingWindow(10, 3, left=1)


def test_a_causal_window_takes_no_global_tokens() -> None:
    layer = layer_of(left=1, causal=True)
    with pytest.raises(ValueError, match=r"takes no global_tokens.*use Attention\(Causal\(\) &"):
        layer(input_of(3, 7), global_tokens=GLOBAL)


@pytest.mark.parametrize(
    "own",
    [{"weights": (Alibi(torch.ones(H)),)}, {"within": Window(3, 3)}],
    ids=["weights", "within"],
)
def test_global_rows_of_their_own_take_no_weights_of_the_layer(own: dict[str, Any]) -> None:
    """They are gathered, and no longer where a bias by distance would look for them."""
    q, x = torch.randn(1, H, 6, E // H), torch.randn(1, 6, E)
    tokens = torch.tensor([[True, *[False] * 5]])
    setting = Setting(x, None, tokens, **own)
    with pytest.raises(ValueError, match=r"Setting's weights and within.*global_projections=False"):
        SlidingWindow(E, H, left=2)(q, q, q, setting)
    assert SlidingWindow(E, H, left=2, global_projections=False)(q, q, q, setting).shape == q.shape


def test_global_tokens_need_the_input() -> None:
    q = torch.randn(3, H, 7, 4)
    window = SlidingWindow(E, H, left=1)
    with pytest.raises(ValueError, match="need the layer's input"):
        window(q, q, q, Setting(global_tokens=GLOBAL))
    with pytest.raises(ValueError, match=r"x must be of shape \(3, 7, 12\)"):
        window(q, q, q, Setting(x=torch.randn(3, 6, E), global_tokens=GLOBAL))
    x = torch.randn(3, 7, E)
    with pytest.raises(ValueError, match=r"a row for each query and key.* for 2 queries"):
        window(q[:, :, :2], q, q, Setting(x=x, global_tokens=GLOBAL))
    with pytest.raises(ValueError, match=r"must have 3 heads of 4.*got 3 of 5"):
        window(q, q, torch.randn(3, H, 7, 5), Setting(x=x, global_tokens=GLOBAL))


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("n", [1, 5])
def test_an_empty_batch(most: int | None, n: int) -> None:
    layer = MultiheadAttention(16, 4, SlidingWindow(16, 4, left=3, most_global=most))
    none = torch.zeros(0, n, dtype=torch.bool)
    assert layer(torch.randn(0, n, 16), global_tokens=none).shape == (0, n, 16)
