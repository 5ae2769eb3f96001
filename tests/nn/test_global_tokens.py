"""Global tokens by positions, with and without a bound on how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import LearnedWindow, Mechanism, MultiheadAttention, Setting, SlidingWindow
from longspan.nn import global_tokens as module
from longspan.nn.global_tokens import KnownTokens, few_tokens
from longspan.patterns import AnyOf, Global

E, H, N = 12, 3, 20

TOKENS = torch.zeros(3, N, dtype=torch.bool)
TOKENS[0, [2, 17]] = True
TOKENS[2, 9] = True


def learned(**options: Any) -> LearnedWindow:
    return LearnedWindow(E, H, mean_reach=2, max_reach=4, **options)


def sliding(**options: Any) -> SlidingWindow:
    return SlidingWindow(E, H, left=1, **options)


def sliding_alone(**options: Any) -> SlidingWindow:
    return SlidingWindow(E, H, left=1, global_projections=False, **options)


def learned_causal(**options: Any) -> LearnedWindow:
    return learned(causal=True, **options)


def learned_soft(**options: Any) -> LearnedWindow:
    return learned(soft=True, **options)


def learned_apart(**options: Any) -> LearnedWindow:
    return learned(global_projections=True, **options)


ALL = [learned, learned_causal, learned_soft, learned_apart, sliding, sliding_alone]


def layer_of(make: Callable[..., Mechanism], **options: Any) -> MultiheadAttention:
    torch.manual_seed(0)
    layer = MultiheadAttention(E, H, make(**options)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5)
    return layer.eval()


def results(layer: MultiheadAttention, x: Tensor, **given: Any) -> list[Tensor]:
    """The outputs, and the gradients."""
    leaves = [x, *layer.parameters()]
    y = layer(x, **given)
    return [y, *torch.autograd.grad(y[given.get("key_padding", slice(None))].sum(), leaves)]


def input_of() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(3, N, E, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("most", [2, 7, 50])
@pytest.mark.parametrize("make", ALL)
def test_a_given_maximum_changes_nothing(make: Any, most: int) -> None:
    """Neither for a sample with fewer global tokens, nor for one without any."""
    x = input_of()
    found = results(layer_of(make, most_global=most), x, global_tokens=TOKENS)
    free = results(layer_of(make), x, global_tokens=TOKENS)
    for have, wanted in zip(found, free, strict=True):
        torch.testing.assert_close(have, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("make", ALL)
def test_padded_tokens_are_not_counted(make: Any) -> None:
    x, real = input_of(), torch.ones(3, N, dtype=torch.bool)
    real[0, 15:] = False
    layer, free = layer_of(make, most_global=1), layer_of(make)
    found = layer(x, global_tokens=TOKENS, key_padding=real)
    wanted = free(x, global_tokens=TOKENS, key_padding=real)
    torch.testing.assert_close(found[real], wanted[real], rtol=1e-11, atol=1e-11)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("make", ALL)
def test_a_layout_has_no_more_places_than_that(make: Any) -> None:
    """As positions do, and masks do not, before they are read."""
    mechanism = make(most_global=4)
    asked = mechanism.asks(torch.randn(3, H, N, E // H), N, Setting(global_tokens=TOKENS))
    patterns = [asked.pattern, *[w.exempt for w in asked.weight]]
    parts = [p for own in patterns for p in (own.patterns if isinstance(own, AnyOf) else [own])]
    (tokens,) = [p for p in parts if isinstance(p, Global)]
    assert tokens.count == 4
    assert isinstance(tokens.tokens, Tensor)
    assert tokens.tokens.tolist() == [[2, 17, -1, -1], [-1] * 4, [9, -1, -1, -1]]


@pytest.mark.parametrize("make", ALL)
def test_what_a_model_has_found_is_for_the_same_masks_alone(make: Any) -> None:
    layer, x, real = layer_of(make, most_global=3), input_of(), torch.rand(3, N) < 0.9
    masks = {"global_tokens": TOKENS, "key_padding": real}
    wanted = layer(x, **masks)
    found = KnownTokens.of("a model", TOKENS, real, 3)
    # It is taken, and not found again.
    odd = found._replace(few=found.few._replace(positions=found.few.positions.roll(1, 0)))
    for known, same in ((found, True), (odd, False)):
        y = layer(x, **masks, known=known)
        assert torch.equal(y[real], wanted[real]) == same
    others = {"tokens": TOKENS.clone(), "key_padding": real.clone(), "most_global": 4}
    for name, other in others.items():
        y = layer(x, **masks, known=odd._replace(**{name: other}))
        assert torch.equal(y[real], wanted[real])
    without = layer(x, key_padding=real)
    assert torch.equal(layer(x, key_padding=real, known=odd)[real], without[real])


@pytest.mark.parametrize("make", ALL)
def test_more_of_them_raise(make: Any) -> None:
    layer = layer_of(make, most_global=1)
    told = f"{type(layer.mechanism).__name__}: most_global is 1, but a sample has 2 global tokens"
    with pytest.raises(ValueError, match=told):
        layer(input_of(), global_tokens=TOKENS)


@pytest.mark.parametrize("make", ALL)
def test_more_of_them_are_never_silently_local(make: Any, monkeypatch: Any) -> None:
    """Where the count is not read, as on a GPU."""
    monkeypatch.setattr(module, "_largest", lambda tokens: 0)
    y = layer_of(make, most_global=1)(input_of(), global_tokens=TOKENS)
    assert y.isnan().any(-1).nonzero().tolist() == [[0, 17]]


@pytest.mark.parametrize("make", ALL)
def test_programs_are_compiled_whole(make: Any) -> None:
    torch._dynamo.reset()
    layer, x = layer_of(make, most_global=2), input_of()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for tokens in (TOKENS, TOKENS.roll(1, -1)):
        found, wanted = compiled(x, global_tokens=tokens), layer(x, global_tokens=tokens)
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("make", [learned, sliding])
def test_is_a_setting(make: Any) -> None:
    for most in (None, 5):
        mechanism = make(most_global=most)
        assert type(mechanism)(**mechanism.settings).most_global == most
    old = {name: value for name, value in make().settings.items() if name != "most_global"}
    assert type(make())(**old).most_global is None


@pytest.mark.parametrize(("most", "error"), [(0, ValueError), (2.0, TypeError), (True, TypeError)])
@pytest.mark.parametrize("make", [learned, sliding])
def test_bad_maximum(make: Any, most: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{type(make()).__name__}: most_global .*{most}"):
        make(most_global=most)


def test_layers_share_their_positions() -> None:
    tokens, real = TOKENS.clone(), torch.ones(3, N, dtype=torch.bool)
    found = few_tokens("A", tokens, real, 3)
    assert few_tokens("A", tokens, real, 3) is found
    assert few_tokens("A", tokens, real, 4) is not found
    assert few_tokens("A", tokens, None, 3) is not found
    real[0, 2] = False
    assert few_tokens("A", tokens, real, 3).positions[0].tolist() == [17, -1, -1]


@pytest.mark.parametrize("n", [1, 4, N, N + 3])
def test_rows_are_the_last_positions(n: int) -> None:
    """As in all of longspan: row r is at position r + M − N."""
    found = module._few("A", 1, [TOKENS[2:]])
    y = found._replace(beyond=TOKENS[:1]).marked(torch.zeros(1, 2, n, 3))
    rows = [place - N + n for place in (2, 17) if place - N + n >= 0]
    assert y.isnan().all(-1).all(1).nonzero()[:, 1].tolist() == rows
    assert int(y.isnan().sum()) == 6 * len(rows)
