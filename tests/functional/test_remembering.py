"""Calls with the same mask share its layout: layers, forward and backward, whoever runs them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import longspan as ls
from longspan.functional import eager
from longspan.layout import Layout, compile, remembered
from longspan.models import Config, Encoder
from longspan.nn import SlidingWindow
from longspan.patterns import Global, Pattern, SameDocument, Window
from longspan.weights import Bell

N = 40


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Layout]:
    """Every layout that is compiled."""
    found: list[Layout] = []
    whole = compile._compile

    def noted(*arguments: Any) -> Layout:
        found.append(whole(*arguments))
        return found[-1]

    monkeypatch.setattr(compile, "_compile", noted)
    return found


@pytest.fixture(params=["straight", "operator"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which of the two ways a call goes."""
    if request.param == "operator":
        monkeypatch.setattr(eager, "observed", lambda: True)
    return str(request.param)


def inputs() -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.randn(2, 2, N, 8, generator=source, requires_grad=True) for _ in range(3)]


def marked(*places: int) -> Tensor:
    mask = torch.zeros(2, N, dtype=torch.bool)
    mask[0, list(places)] = True
    return mask


def pattern_of(mask: Tensor) -> Pattern:
    return Window(2, 2) | Global(mask)


def wanted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return ls.attention(q, k, v, pattern_of(mask.clone()), backend="reference")


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_forward_backward_and_the_next_layer(
    compiled: list[Layout], way: str, backend: str
) -> None:
    (q, k, v), mask = inputs(), marked(7, 30)
    x = q
    for _ in range(3):
        x = ls.attention(x, k, v, pattern_of(mask), backend=backend)
    x.sum().backward()
    assert len(compiled) == 1
    y = q
    for _ in range(3):
        y = wanted(y, k, v, mask)
    torch.testing.assert_close(x, y)


def test_a_mask_that_only_the_graph_keeps(compiled: list[Layout], way: str) -> None:
    """Autograd gives back the object that it saved."""
    (q, k, v), count = inputs(), len(remembered._LAYOUTS)

    def layer() -> Tensor:
        return ls.attention(q, k, v, pattern_of(marked(7, 30))).sum()

    y = layer()
    gc.collect()
    y.backward()
    assert len(compiled) == 1
    del y
    gc.collect()
    assert len(remembered._LAYOUTS) <= count


def test_gradient_checkpointing(compiled: list[Layout]) -> None:
    (q, k, v), mask = inputs(), marked(7, 30)

    def layer(q: Tensor, mask: Tensor) -> Tensor:
        return ls.attention(q, k, v, pattern_of(mask))

    for _ in range(2):
        checkpoint(layer, q, mask, use_reentrant=False).sum().backward()
    assert len(compiled) == 1


def test_an_exempt_pattern(compiled: list[Layout]) -> None:
    """Whose weight's reach is compiled in every pass, unless the backend takes it as it is."""
    (q, k, v), mask = inputs(), marked(7, 30)
    for _ in range(2):
        ls.attention(q, k, v, weight=Bell(9.0, exempt=Global(mask))).sum().backward()
    assert len(compiled) == 1


def change(mask: Tensor) -> None:
    mask[0, 11] = True


def change_uncounted(mask: Tensor) -> None:
    """As a compiled program writes into its own tensors."""
    mask.numpy()[0, 11] = True


@pytest.mark.parametrize("changed", [change, change_uncounted])
def test_a_changed_mask(
    compiled: list[Layout], way: str, changed: Callable[[Tensor], None]
) -> None:
    (q, k, v), mask = inputs(), marked(7, 30)
    before = ls.attention(q, k, v, pattern_of(mask))
    changed(mask)
    after = ls.attention(q, k, v, pattern_of(mask))
    assert len(compiled) == 2
    torch.testing.assert_close(before, wanted(q, k, v, marked(7, 30)))
    torch.testing.assert_close(after, wanted(q, k, v, marked(7, 11, 30)))


def test_padding_is_not_part_of_it(compiled: list[Layout]) -> None:
    (q, k, v), mask = inputs(), marked(7, 30)
    for length in (N, 35, 20):
        real = (torch.arange(N) < length).expand(2, N)
        y = ls.attention(q, k, v, pattern_of(mask), key_padding=real)
        right = ls.attention(
            q, k, v, pattern_of(mask.clone()), key_padding=real, backend="reference"
        )
        torch.testing.assert_close(y, right)
    assert len(compiled) == 1


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_what_backends_keep_with_a_layout(backend: str) -> None:
    """Serves other heads, other batches and other weights."""
    ids = (torch.arange(N) // 9)[None]
    for batch, heads in ((1, 2), (3, 2), (2, 5), (1, 2)):
        q, k, v = (torch.randn(batch, heads, N, 8, requires_grad=True) for _ in range(3))
        for weight in (None, Bell(torch.rand(batch, heads, N) * 20 + 1)):
            results = []
            for own, by in ((ids, backend), (ids.clone(), "reference")):
                y = ls.attention(q, k, v, SameDocument(own), weight=weight, backend=by)
                results.append([y, *torch.autograd.grad(y.square().sum(), (q, k, v))])
            for have, right in zip(*results, strict=True):
                torch.testing.assert_close(have, right, atol=2e-5, rtol=2e-5)


def two_layers(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, real: Tensor) -> Tensor:
    for _ in range(2):
        q = ls.attention(q, k, v, pattern_of(mask & real), key_padding=real)
    return q


# torch's compiler itself does what torch warns of.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layers_of_a_compiled_program_share_a_stamp(
    compiled: list[Layout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes into memory of its own again and again, in the same objects: a tensor's version
    says nothing there.
    """
    stamps: list[Tensor | None] = []
    found = remembered._LAYOUTS.found

    def noted(*arguments: Any, stamp: Tensor | None) -> Layout:
        stamps.append(stamp)
        return found(*arguments, stamp=stamp)

    monkeypatch.setattr(remembered._LAYOUTS, "found", noted)
    (q, k, v), mask = inputs(), marked(7, 30)
    real = (torch.arange(N) < 35).expand(2, N)
    program = torch.compile(two_layers, backend="aot_eager_decomp_partition")
    # Its first run is watched by torch itself, in a way that lets nothing be kept.
    program(q, k, v, mask, real)
    for step in range(2):
        stamps.clear()
        compiled.clear()
        mask[0, 3 + step] = True
        y = program(q, k, v, mask, real)
        got = torch.autograd.grad(y.square().sum(), (q, k, v))
        assert len(stamps) == 4 and stamps[0] is not None
        assert all(stamp is stamps[0] for stamp in stamps) and len(compiled) == 1
        right = two_layers(q, k, v, mask, real)
        assert stamps[4:] == [None, None]
        torch.testing.assert_close(y, right)
        torch.testing.assert_close(got, torch.autograd.grad(right.square().sum(), (q, k, v)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("most", [None, 4])
def test_layers_that_are_compiled_one_by_one_share_a_layout(
    compiled: list[Layout], most: int | None
) -> None:
    """Each is a program of its own, but the masks are given to all of them."""
    config = Config(vocab=20, width=16, layers=3, heads=2, length=N)
    apart = most is not None

    def window(layer: int) -> SlidingWindow:
        return SlidingWindow(16, 2, left=2, most_global=most, global_projections=apart)

    encoder = Encoder(config, window)
    plain = deepcopy(encoder)
    for block in encoder.blocks:
        own: Any = block
        own.forward = torch.compile(block.forward, backend="aot_eager", dynamic=True)
    tokens, mask = torch.arange(2 * N).view(2, N) % 20, marked(7, 30)
    real = (torch.arange(N) < 35).expand(2, N).clone()
    for step in range(4):
        if step == 2:
            mask[1, 3] = True
        if step == 3:
            real[:, 34] = False
        compiled.clear()
        y = encoder(tokens, key_padding=real, global_tokens=mask)
        y.square().sum().backward()
        # The first step is watched by torch, in a way that lets nothing be kept.
        assert step == 0 or len(compiled) == (step >= 2)
        right = plain(tokens, key_padding=real.clone(), global_tokens=mask.clone())
        right.square().sum().backward()
        torch.testing.assert_close(y, right)
        for one, other in zip(encoder.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4)
