"""Calls that nobody traces go past the operator: same numbers, same manners."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import longspan as ls
from longspan.functional import eager
from longspan.normalizers import Entmax
from longspan.patterns import Global, Mask, SameDocument, Window
from longspan.weights import Alibi, Bell, Ramp

N = 30
FORWARD, BACKWARD = "longspan.attention.default", "longspan.attention_backward.default"

Inputs = dict[str, Tensor]
Call = Callable[[Inputs], Tensor]


def inputs() -> Inputs:
    """q, k, v and tensors to learn, all with gradients; and some to look at."""
    made = torch.Generator().manual_seed(5)
    found = {name: torch.randn(2, 2, N, 8, generator=made) for name in "qkv"}
    found["variance"] = torch.rand(2, 2, N, generator=made) * 30 + 1
    found["slopes"] = torch.rand(2, generator=made)
    found["span"] = torch.rand(2, generator=made) * 9
    found["alpha"] = torch.rand(2, generator=made) * 0.8 + 1.1
    for x in found.values():
        x.requires_grad_()
    found["mask"] = torch.rand(1, 2, N, N, generator=made) > 0.4
    found["ids"] = torch.arange(N).expand(2, N) // 7
    found["real"] = torch.rand(2, N, generator=made) > 0.2
    return found


def call(x: Inputs, *args: Any, **kwargs: Any) -> Tensor:
    return ls.attention(x["q"], x["k"], x["v"], *args, **kwargs)


CALLS: dict[str, Call] = {
    "window": lambda x: call(x, Window(5, 3) | Global(1)),
    "bell": lambda x: call(x, weight=Bell(x["variance"], threshold=0.3, exempt=Global(2))),
    "bell, fixed": lambda x: call(x, weight=Bell(x["variance"].detach(), threshold=0.3)),
    "several": lambda x: call(
        x,
        Window(9, 9),
        weight=[Alibi(x["slopes"].detach()), Ramp(x["span"], 2.0), Bell(x["variance"])],
        normalizer=Entmax(x["alpha"]),
    ),
    "mask": lambda x: call(x, Mask(x["mask"]) | SameDocument(x["ids"])),
    "exempt mask": lambda x: call(
        x, weight=Bell(x["variance"], max_reach=3, exempt=Mask(x["mask"]))
    ),
    "padding": lambda x: call(x, Window(5, 5), key_padding=x["real"], scale=0.2),
    "dropout": lambda x: call(x, Window(5, 5), dropout=0.3),
    "torch": lambda x: call(x, Window(5, 5), weight=Bell(x["variance"]), backend="torch"),
}


class Watching(TorchDispatchMode):
    """Notes the operators that pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def with_gradients(made: Call, x: Inputs) -> list[Tensor | None]:
    torch.manual_seed(1)
    y = made(x)
    learned = [t for t in x.values() if t.requires_grad]
    return [y, *torch.autograd.grad(y.square().sum(), learned, allow_unused=True)]


@pytest.mark.parametrize("name", CALLS)
def test_same_bits_as_the_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = inputs()
    with Watching() as watching:
        want = with_gradients(CALLS[name], x)
    assert {FORWARD, BACKWARD} <= set(watching.seen)

    def refused(*_: Any) -> None:
        raise AssertionError("the operator was called")

    monkeypatch.setattr(eager, "attention_op", refused)
    monkeypatch.setattr(eager, "attention_backward_op", refused)
    found = with_gradients(CALLS[name], x)
    assert [t is None for t in found] == [t is None for t in want]
    for a, b in zip(found, want, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and a.equal(b))
    torch.manual_seed(1)
    with torch.no_grad():
        alone = CALLS[name](x)
    assert found[0] is not None
    assert alone.equal(found[0])
    assert not alone.requires_grad


def test_fake_tensors_see_the_operator() -> None:
    with FakeTensorMode() as mode:
        x = {name: mode.from_tensor(t) for name, t in inputs().items()}
        for made in CALLS.values():
            assert made(x).shape == (2, 2, N, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_without_values(dtype: torch.dtype) -> None:
    """Fake or on the meta device: shapes follow, and gradients of shapes."""
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.randn(2, 2, N, 8, dtype=dtype))
        assert ls.attention(fake, fake, fake, Window(5, 3)).shape == (2, 2, N, 8)
    for backend in ("auto", "torch", "reference"):
        q = torch.randn(2, 2, N, 8, dtype=dtype, device="meta", requires_grad=True)
        y = ls.attention(q, q, q[..., :5], Window(5, 3), dropout=0.1, backend=backend)
        assert y.is_meta and y.shape == (2, 2, N, 5) and y.dtype == dtype
        y.sum().backward()
        assert q.grad is not None and q.grad.shape == q.shape


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_programs_made_by_tracing_hold_the_operator(pre_dispatch: bool) -> None:
    def forward(q: Tensor, variance: Tensor) -> Tensor:
        return ls.attention(q, q, q, weight=Bell(variance, threshold=0.3))

    x = inputs()
    given = (x["q"].detach(), x["variance"].detach())
    traced = make_fx(forward, pre_dispatch=pre_dispatch)(*given)
    assert [str(node.target) for node in traced.graph.nodes].count(FORWARD) == 1
    torch.testing.assert_close(traced(*given), forward(*given))


def test_backward_of_an_eager_call_under_a_mode_is_seen() -> None:
    x = inputs()
    y = CALLS["bell"](x)
    with Watching() as watching:
        y.sum().backward()
    assert BACKWARD in watching.seen
    assert FORWARD not in watching.seen


@pytest.mark.parametrize("name", ["window", "bell", "mask"])
def test_double_backward_raises(name: str) -> None:
    x = inputs()
    (g,) = torch.autograd.grad(CALLS[name](x).square().sum(), x["q"], create_graph=True)
    with pytest.raises(RuntimeError, match=r"backward through longspan\.attention_backward"):
        g.sum().backward()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("bell", "q"),
        ("bell", "variance"),
        ("mask", "mask"),
        ("exempt mask", "mask"),
        ("padding", "real"),
    ],
)
def test_changed_tensors_are_noticed(name: str, changed: str) -> None:
    x = inputs()
    y = CALLS[name](x)
    with torch.no_grad():
        x[changed].copy_(torch.ones_like(x[changed]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["bell", "exempt mask", "padding"])
def test_hooks_may_keep_the_tensors_elsewhere(name: str) -> None:
    x = inputs()
    want = with_gradients(CALLS[name], x)
    kept = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.dtype)
        return t.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        found = with_gradients(CALLS[name], x)
    assert len(kept) >= 5
    for a, b in zip(found, want, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and a.equal(b))


def test_graphs_hold_no_tensor_but_through_autograd() -> None:
    x = inputs()
    variance, mask = x["variance"] * 1, x["mask"].clone()
    refs = [weakref.ref(variance), weakref.ref(mask)]
    gc.disable()
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            y = call(x, weight=Bell(variance, threshold=0.3, exempt=Mask(mask)))
        del variance, mask
        assert [ref() for ref in refs] == [None, None]
        y.sum().backward()
        node, y = weakref.ref(y.grad_fn), y.detach()
        assert node() is None
    finally:
        gc.enable()


class Stops(torch.autograd.Function):
    """Passes everything on and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


def test_without_a_gradient_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = inputs()
    y = Stops.apply(CALLS["bell"](x))
    monkeypatch.setattr(eager.passes, "backward", None)
    y.sum().backward()
    assert x["q"].grad is None
    assert x["variance"].grad is None
