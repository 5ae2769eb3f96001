"""What several projections read is cast once: the same numbers, and fewer copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longspan.nn import LearnedWindow, MultiheadAttention, SlidingWindow
from longspan.nn.casting import cast_once
from longspan.patterns import Window

B, N, E, H = 2, 33, 16, 2


def layer(**settings: Any) -> MultiheadAttention:
    own = SlidingWindow(E, H, left=4, **settings)
    return MultiheadAttention(E, H, own)


def separately(layer: MultiheadAttention, x: Tensor) -> Tensor:
    """What `layer` computes, of inputs that are cast for each projection."""
    q, k, v = (own(x) for own in (layer.q_proj, layer.k_proj, layer.v_proj))
    heads = [layer._heads(own) for own in (q, k, v)]
    y = layer.mechanism(*heads)
    return layer.out_proj(y.transpose(1, 2).flatten(2))


def test_numbers_are_those_of_casts_for_each() -> None:
    torch.manual_seed(0)
    own = layer()
    # No leaf, whose cast autocast keeps as it keeps those of weights.
    x = torch.randn(B, N, E, requires_grad=True) * 1
    with torch.autocast("cpu", torch.bfloat16):
        y, want = own(x), separately(own, x)
    assert torch.equal(y, want)
    upstream = torch.randn_like(y)
    learned = [x, *own.q_proj.parameters(), *own.k_proj.parameters()]
    found = torch.autograd.grad(y, learned, upstream)
    wanted = torch.autograd.grad(want, learned, upstream)
    # Sums of the same numbers in float32, in another order.
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-6, atol=1e-6)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert torch.equal(a, b)


def kept(make: Any) -> list[tuple[torch.Size, torch.dtype]]:
    """What the backward of a call keeps, each memory once."""
    found: dict[int, tuple[torch.Size, torch.dtype]] = {}

    def pack(x: Tensor) -> Tensor:
        found[x.untyped_storage().data_ptr()] = x.shape, x.dtype
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        make()
    return list(found.values())


@pytest.mark.parametrize(("projections", "copies"), [(False, 1), (True, 2)])
def test_the_backward_keeps_one_copy(projections: bool, copies: int) -> None:
    own = layer(global_projections=projections)
    x = torch.randn(B, N, E, requires_grad=True) * 1
    tokens = torch.zeros(B, N, dtype=torch.bool)
    tokens[:, :20] = True
    held = []
    with torch.autocast("cpu", torch.bfloat16):
        saved = kept(lambda: held.append(own(x, global_tokens=tokens)))
    # As products see them; one more is the mechanism's output.
    inputs = [own for own in saved if own == (torch.Size((B * N, E)), torch.bfloat16)]
    assert len(inputs) == copies + 1


def test_memory_of_another_text() -> None:
    own = MultiheadAttention(E, H, Window(4, 4))
    x, memory = torch.randn(B, N, E), torch.randn(B, N + 3, E, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = own(x, memory)
    y.float().sum().backward()
    assert memory.grad is not None and memory.grad.dtype == torch.float32


class Watched(TorchDispatchMode):
    """Sees every operator."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def test_what_is_not_cast_is_given_as_it_is() -> None:
    x = torch.randn(B, N, E)
    for given in (x, x.double(), x.bfloat16(), x.to("meta")):
        assert all(own is given for own in cast_once(given, 3))
    with torch.autocast("cpu", torch.bfloat16):
        for given in (x.double(), x.bfloat16()):
            assert all(own is given for own in cast_once(given, 3))
        with torch.autocast("cpu", enabled=False):
            assert all(own is x for own in cast_once(x, 3))
        with Watched():
            # A mode that looks at operators sees those of PyTorch.
            assert all(own is x for own in cast_once(x, 3))
        a, b = cast_once(x, 2)
        assert a is b and a.dtype == torch.bfloat16


def test_gradients_of_some() -> None:
    x = torch.randn(B, N, E, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        a, _, c = cast_once(x, 3)
    (found,) = torch.autograd.grad((2 * a).sum() + (3 * c).sum(), x)
    assert torch.equal(found, torch.full_like(x, 5.0))
    with torch.autocast("cpu", torch.bfloat16):
        a, b = cast_once(x, 2)
    (first,) = torch.autograd.grad((a * b).float().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.full_like(x, 2.0))


def test_a_learned_window_trains_with_it() -> None:
    torch.manual_seed(0)
    own = MultiheadAttention(
        E, H, LearnedWindow(E, H, mean_reach=4, max_reach=16, global_projections=True)
    )
    x = torch.randn(B, N, E, requires_grad=True)
    tokens = torch.zeros(B, N, dtype=torch.bool)
    tokens[:, 0] = True
    with torch.autocast("cpu", torch.bfloat16):
        y = own(x, global_tokens=tokens)
    y.float().square().mean().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())
    assert all(p.grad is not None for p in own.parameters())
