"""A fixed combination as a module: its answers, its tensors, what it says of itself."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import longspan as ls
from longspan.nn import Attention, MultiheadAttention, Setting
from longspan.normalizers import Entmax, Sparsemax
from longspan.patterns import Causal, Global, Mask, Window
from longspan.weights import Alibi, Bell, Bias, DistanceBias

from .naive import attend, gradients, join, real_tokens, split

H = 2


def qkv(n: int = 6, heads: int = H, key_heads: int = H) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, heads, n, 3), (2, key_heads, n, 3), (2, key_heads, n, 5))
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return q, k, v


def learned(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


@pytest.mark.parametrize("n", [1, 6])
def test_is_the_formula(n: int) -> None:
    q, k, v = qkv(n, heads=4)
    real = real_tokens(n, (n + 1) // 2, n=n)
    module = Attention(Window(2, 0) | Global(1))
    y = module(q, k, v, Setting(key_padding=real))
    expected = attend(
        q, k, v, lambda b, h, i, j: bool(real[b, j]) and (0 <= i - j <= 2 or i == 0 or j == 0)
    )
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    mixture = torch.randn_like(y)
    found, wanted = (torch.autograd.grad(out, (q, k, v), mixture) for out in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_in_a_layer() -> None:
    layer = MultiheadAttention(6, H, Attention(Causal())).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    own = [split(p(x), 3) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    expected = layer.out_proj(join(attend(*own, lambda b, h, i, j: j <= i)))
    y = layer(x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(
        gradients(y, x, layer), gradients(expected, x, layer), rtol=1e-8, atol=1e-9
    )


def test_nothing_given_is_full_attention() -> None:
    q, k, v = qkv()
    torch.testing.assert_close(Attention()(q, k, v), ls.attention(q, k, v), rtol=0, atol=0)
    assert not Attention().causal and Attention().remembers is None


def test_weights_of_the_layer_act_first() -> None:
    """A bell that multiplies scores multiplies what the layer has added to them."""
    q, k, v = qkv()
    layers = Bias(torch.randn(1, H, 6, 6))
    own = Bell(torch.full((2, H, 6), 4.0), threshold=None, form="score")
    module, setting = Attention(Window(3, 3), weight=own), Setting(weights=(layers,))
    found = module(q, k, v, setting)
    assert torch.equal(found, ls.attention(q, k, v, Window(3, 3), weight=(layers, own)))
    other = ls.attention(q, k, v, Window(3, 3), weight=(own, layers))
    assert not torch.allclose(found, other, atol=1e-3)
    said = module.explain(q, k, v, setting)
    assert str(said) == str(ls.explain(q, k, v, Window(3, 3), weight=(layers, own)))


def test_says_whether_it_looks_ahead() -> None:
    window = Attention(Window(4, 0), weight=Alibi(torch.ones(H)))
    assert window.causal and window.remembers == 5
    assert Attention(Causal()).causal and Attention(Causal()).remembers is None
    assert not Attention(Window(4, 1)).causal


def whole() -> Attention:
    """One with tensors of every sort."""
    return Attention(
        Window(3, 0) | Global(torch.tensor([2])),
        weight=[
            Alibi(learned(0.5, 0.25)),
            DistanceBias(torch.randn(5)),
            Bell(learned(4.0, 9.0)[:, None].detach(), exempt=Global(torch.tensor([1]))),
        ],
        normalizer=Entmax(learned(1.2, 1.7)),
    )


def test_owns_the_tensors_inside() -> None:
    module = whole()
    assert dict(module.named_parameters()).keys() == {"weight0_slopes", "normalizer_alpha"}
    assert module.state_dict().keys() == {
        "weight0_slopes",
        "weight1_table",
        "weight2_variance",
        "normalizer_alpha",
        "fixed0",
        "fixed1",
    }
    assert Attention(weight=Alibi(learned(0.5, 0.25))).state_dict().keys() == {"weight_slopes"}


def test_computes_with_the_tensors_as_they_are_now() -> None:
    module, other = whole(), whole()
    q, k, v = (x.detach() for x in qkv())
    with torch.no_grad():
        module.weight0_slopes.mul_(3)
        module.normalizer_alpha.fill_(1.5)
        module.fixed0.fill_(4)
    for assign in (False, True):
        fresh = deepcopy(other)
        assert not torch.allclose(fresh(q, k, v), module(q, k, v))
        fresh.load_state_dict(module.state_dict(), assign=assign)
        assert torch.equal(fresh(q, k, v), module(q, k, v))
    expected = ls.attention(
        q,
        k,
        v,
        Window(3, 0) | Global(torch.tensor([4])),
        weight=[
            Alibi(torch.tensor([1.5, 0.75])),
            DistanceBias(module.weight1_table),
            Bell(torch.tensor([[4.0], [9.0]]), exempt=Global(torch.tensor([1]))),
        ],
        normalizer=Entmax(1.5),
    )
    torch.testing.assert_close(module(q, k, v), expected, rtol=1e-6, atol=1e-7)


def test_survives_a_change_of_dtype_a_copy_and_a_file() -> None:
    module = whole()
    q, k, v = (x.detach().float() for x in qkv())
    wanted = module(q, k, v)
    torch.testing.assert_close(module.double().float()(q, k, v), wanted)
    copied = deepcopy(module)
    assert torch.equal(copied(q, k, v), module(q, k, v))
    with torch.no_grad():
        copied.weight0_slopes.zero_()
    assert torch.equal(module(q, k, v), wanted)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(q, k, v), wanted)


def test_moves_with_the_module() -> None:
    module = whole().to("meta")
    meaning = module.meaning
    assert meaning.normalizer.alpha.device.type == "meta"
    assert {t.device.type for t in meaning.pattern.tensors()} == {"meta"}


def test_trains_what_is_learned() -> None:
    module = whole()
    q, k, v = qkv()
    module(q, k, v).square().sum().backward()
    for parameter in module.parameters():
        assert parameter.grad is not None and parameter.grad.abs().min() > 0


def test_the_same_objects_while_nothing_moves() -> None:
    module = whole()
    assert module.meaning is module.meaning
    before = module.meaning
    module.double()
    assert module.meaning is not before and module.meaning is module.meaning


def test_padding_and_the_batch_change_nothing() -> None:
    module = Attention(Window(2, 2) | Global(1), normalizer=Sparsemax())
    q, k, v = (x.detach() for x in qkv())
    alone = module(q, k, v)
    longer = [torch.cat([x, 100 * torch.randn(2, H, 3, x.shape[3]).double()], 2) for x in (q, k, v)]
    padded = module(*longer, Setting(key_padding=real_tokens(6, 6, n=9)))
    torch.testing.assert_close(padded[:, :, :6], alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(module(q[1:], k[1:], v[1:]), alone[1:], rtol=1e-12, atol=1e-12)


def test_dropout_only_in_training() -> None:
    q, k, v = qkv()
    module, setting = Attention().eval(), Setting(dropout=0.5)
    assert torch.equal(module(q, k, v, setting), module(q, k, v))
    assert not torch.allclose(module.train()(q, k, v, setting), module(q, k, v))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"pattern": 3}, TypeError, "Attention: pattern .*3"),
        ({"normalizer": "softmax"}, TypeError, "Attention: normalizer .*softmax"),
        ({"weight": 3}, TypeError, "weight must be a weight"),
        (
            {"normalizer": Entmax(learned(0.1, 0.2).sigmoid() + 1)},
            ValueError,
            "normalizer_alpha needs a gradient but is not an nn.Parameter",
        ),
        (
            {"weight": Bias(torch.zeros(1, 1, 6, 6, requires_grad=True))},
            ValueError,
            "weight_tensor needs a gradient",
        ),
    ],
    ids=["pattern", "normalizer", "weight", "computed", "leaf"],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Attention(**options)


def test_takes_no_global_tokens() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"takes no global_tokens: make it with Global\(…\)"):
        Attention()(q, k, v, Setting(global_tokens=torch.ones(2, 6).bool()))


def test_shows_what_it_is() -> None:
    mask = Mask(torch.ones(1, 1, 6, 6).bool())
    assert "Window(2, 0)" in repr(Attention(Window(2, 0)))
    assert "Sparsemax" in repr(Attention(mask, normalizer=Sparsemax()))


def test_tensors_that_are_lent_for_a_call_are_not_kept() -> None:
    mechanism = Attention(weight=Alibi(nn.Parameter(torch.ones(2))))
    q = torch.randn(1, 2, 5, 4)

    def total(own: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(mechanism, own, (q, q, q)).sum()

    own = dict(mechanism.named_parameters())
    by_transform = torch.func.grad(total)(own)
    deepcopy(mechanism)
    doubled = {name: 2 * value for name, value in own.items()}
    total(doubled).backward()
    deepcopy(mechanism)
    assert by_transform.keys() == own.keys()
    assert mechanism.meaning.weights[0].slopes is mechanism.weight_slopes  # type: ignore[attr-defined]
