"""Transforms of `torch.func` give what autograd gives, or say what there is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

import longspan as ls
from longspan.functional import transformed, window
from longspan.kernels import cpu
from longspan.nn import LearnedWindow, MultiheadAttention
from longspan.normalizers import Entmax
from longspan.patterns import Causal, Global, SameDocument, Window
from longspan.weights import Alibi, Bell, DistanceBias

# Torch prepares for such derivatives, and compiles, by what it warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*lru_cache.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

N = 24
BACKENDS = ["auto", "torch", *(["cpu"] if cpu.available() else [])]

Call = Callable[..., Tensor]


def fixed(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


MASK = fixed(2, N) < 0.2
REAL = fixed(2, N, seed=1) < 0.8
IDS = (fixed(N, seed=2) * 4).long()
SLOPES = fixed(2, seed=3)
TABLE = fixed(2, 9, seed=4)

CALLS: dict[str, Call] = {
    "window": lambda q, k, v, **o: ls.attention(q, k, v, Window(5, 3) | Global(1), **o),
    "samples": lambda q, k, v, **o: ls.attention(
        q, k, v, Window(5, 3) | Global(MASK), key_padding=REAL, **o
    ),
    "documents": lambda q, k, v, **o: ls.attention(q, k, v, SameDocument(IDS), **o),
    "bell": lambda q, k, v, **o: ls.attention(
        q, k, v, weight=Bell(q.square().sum(-1) + 1, threshold=0.3, exempt=Global(1)), **o
    ),
    "entmax": lambda q, k, v, **o: ls.attention(
        q, k, v, Causal(), weight=Alibi(SLOPES), normalizer=Entmax(1.5), **o
    ),
}


def inputs(*before: int, seed: int = 0) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*before, 2, 2, N, 8, generator=source) for _ in range(3)]


def by_autograd(function: Call, given: list[Tensor]) -> list[Tensor]:
    known = [x.clone().requires_grad_() for x in given]
    return list(torch.autograd.grad(function(*known), known))


def squares(call: Call, **options: Any) -> Call:
    return lambda *given: call(*given, **options).square().sum()


def assert_all_close(found: Any, wanted: Any) -> None:
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_gradients(name: str, backend: str) -> None:
    given, loss = inputs(), squares(CALLS[name], backend=backend)
    wanted = by_autograd(loss, given)
    assert_all_close(grad(loss, argnums=(0, 1, 2))(*given), wanted)
    y, pull = vjp(CALLS[name], *given)
    assert torch.equal(y, CALLS[name](*given))
    assert_all_close(pull(2 * y), wanted)


@pytest.mark.parametrize("name", CALLS)
def test_maps_over_examples(name: str) -> None:
    call, (q, k, v) = CALLS[name], inputs(3)
    wanted = torch.stack([call(*own) for own in zip(q, k, v, strict=True)])
    torch.testing.assert_close(vmap(call)(q, k, v), wanted)
    by_other_dims = vmap(call, in_dims=(2, 0, -1), out_dims=1)
    found = by_other_dims(q.movedim(0, 2), k, v.movedim(0, -1))
    torch.testing.assert_close(found, wanted.movedim(0, 1))
    shared = vmap(call, in_dims=(0, None, None))(q, k[0], v[0])
    torch.testing.assert_close(shared, torch.stack([call(own, k[0], v[0]) for own in q]))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_every_example(name: str) -> None:
    loss, given = squares(CALLS[name]), inputs(3)
    found = vmap(grad(loss, argnums=(0, 1, 2)))(*given)
    each = [by_autograd(loss, list(own)) for own in zip(*given, strict=True)]
    assert_all_close(found, [torch.stack(own) for own in zip(*each, strict=True)])
    # And autograd around the map.
    assert_all_close(by_autograd(lambda *own: vmap(loss)(*own).sum(), given), found)


@pytest.mark.parametrize("name", CALLS)
def test_jacobians(name: str) -> None:
    q, k, v = inputs()

    def some(q: Tensor) -> Tensor:
        return CALLS[name](q, k, v)[0, 1, 5:7]

    wanted = torch.autograd.functional.jacobian(some, q)
    torch.testing.assert_close(jacrev(some)(q), wanted)


@pytest.mark.parametrize("samples", [1, 2])
def test_what_examples_share_has_a_gradient_of_each(samples: int) -> None:
    """Of a batch it would be the sum."""
    q, k, v = (x[:, :samples] for x in inputs(3))

    def loss(slopes: Tensor, table: Tensor, alpha: Tensor, *given: Tensor) -> Tensor:
        weights = [Alibi(slopes), DistanceBias(table)]
        return ls.attention(*given, weight=weights, normalizer=Entmax(alpha)).square().sum()

    learned = [SLOPES, TABLE, torch.tensor([1.2, 1.6])]
    dims = (None, None, None, 0, 0, 0)
    found = vmap(grad(loss, argnums=(0, 1, 2)), in_dims=dims)(*learned, q, k, v)
    for number in range(3):
        own = [x[number] for x in (q, k, v)]
        wanted = by_autograd(lambda *known, own=own: loss(*known, *own), learned)
        assert_all_close([x[number] for x in found], wanted)


def test_examples_that_are_samples_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    forward = transformed.passes.forward

    def noted(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        batches.append(q.shape[0])
        return forward(q, *rest)

    monkeypatch.setattr(transformed.passes, "forward", noted)
    q, k, v = inputs(3)
    vmap(CALLS["window"])(q, k, v)
    vmap(CALLS["documents"])(q[:, :1], k[:, :1], v[:, :1])
    assert batches == [6, 3]
    batches.clear()
    vmap(CALLS["samples"])(q, k, v)
    assert batches == [2, 2, 2]


def test_masks_of_every_example() -> None:
    q, k, v = inputs(3)
    mask = fixed(3, 2, N, seed=5) < 0.3

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return ls.attention(q, k, v, Window(1, 1) | Global(mask), key_padding=mask | REAL)

    each = [call(*own) for own in zip(q, k, v, mask, strict=True)]
    torch.testing.assert_close(vmap(call)(q, k, v, mask), torch.stack(each))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout(randomness: str) -> None:
    q, k, v = (x[:1].expand(3, -1, -1, -1, -1) for x in inputs(1))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ls.attention(q, k, v, Window(9, 9), dropout=0.5)

    found = vmap(call, randomness=randomness)(q, k, v)
    assert torch.equal(found[0], found[1]) == (randomness == "same")


def test_examples_of_a_model() -> None:
    """As gradients of every sample are asked for."""
    layer = MultiheadAttention(16, 2, LearnedWindow(16, 2, mean_reach=4, max_reach=9)).eval()
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x = fixed(3, N, 16, seed=6)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, parameters, (x[None],)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for number, own in enumerate(x):
        layer.zero_grad()
        layer(own[None]).square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            torch.testing.assert_close(found[name][number], parameter.grad, msg=name)


def test_programs_hold_the_operators() -> None:
    given, loss = inputs(), squares(CALLS["bell"])
    wanted = grad(loss)(*given)
    program = make_fx(grad(loss), tracing_mode="symbolic")(*given)
    names = [str(node.target) for node in program.graph.nodes]
    assert names.count("longspan.attention.default") == 1
    assert names.count("longspan.attention_backward.default") == 1
    torch.testing.assert_close(program(*given), wanted)


@pytest.mark.parametrize("name", ["window", "samples", "bell"])
def test_around_and_inside_of_compiled_programs(name: str) -> None:
    """The compiler leaves them to Python, and takes up none of the kernels that this runs."""
    call, given, examples = CALLS[name], inputs(), inputs(3)
    loss = squares(call)
    for program, own in ((grad(loss), given), (vmap(call), examples), (vmap(grad(loss)), examples)):
        torch._dynamo.reset()
        compiled = torch.compile(program, backend="aot_eager")
        torch.testing.assert_close(compiled(*own), program(*own))
    torch._dynamo.reset()
    inside = torch.compile(loss, backend="aot_eager")
    torch.testing.assert_close(grad(inside)(*given), grad(loss)(*given))


@pytest.mark.parametrize("name", ["window", "bell"])
def test_second_derivatives_raise(name: str) -> None:
    (q, k, v), call = inputs(), CALLS[name]
    loss = squares(call)
    q.requires_grad_()
    for twice in (
        lambda: grad(lambda q: grad(loss)(q, k, v).square().sum())(q),
        lambda: torch.autograd.grad(grad(loss)(q, k, v).sum(), q),
        lambda: torch.autograd.grad(vjp(call, q, k, v)[1](v)[0].sum(), q),
    ):
        with pytest.raises(RuntimeError, match="twice"):
            twice()


@pytest.mark.parametrize("name", ["window", "bell"])
def test_forward_derivatives_raise(name: str) -> None:
    q, k, v = (x[:, :1, :4] for x in inputs())
    loss = squares(lambda q: ls.attention(q, k, v, Window(5, 5)))
    many = q.expand(3, *q.shape)
    for forward in (
        lambda: jvp(loss, (q,), (q,)),
        lambda: jacfwd(loss)(q),
        lambda: hessian(loss)(q),
        lambda: jvp(grad(loss), (q,), (q,)),
        lambda: jvp(vmap(loss), (many,), (many,)),
        lambda: vmap(lambda q: jvp(loss, (q,), (q,)))(many),
    ):
        with pytest.raises(NotImplementedError, match=r"forward-mode.* use torch\.autograd\.grad"):
            forward()
    # Nothing of these calls is differentiated.
    jvp(lambda x: x.sum() + loss(q), (v,), (v,))


def test_kernels_of_the_learned_window_leave_transforms_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window.kernels, "takes_network", lambda *_: True)
    monkeypatch.setattr(window.kernels, "takes_budget", lambda *_: True)
    taken = []

    def look(x: Tensor) -> Tensor:
        taken.append((window.takes_network(x, x, x), window.takes_budget(x)))
        return x.sum()

    look(SLOPES)
    grad(look)(SLOPES)
    vmap(look)(TABLE)
    assert taken == [(True, True), (False, False), (False, False)]


def test_what_takes_no_transforms_says_so() -> None:
    q, k, v = inputs()
    for call in (
        lambda q: ls.attention(q, k, v, backend="reference"),
        lambda q: ls.attention_map(q, k),
    ):
        with pytest.raises(NotImplementedError, match=r"torch\.func.* torch\.autograd\.grad"):
            grad(lambda q, call=call: call(q).sum())(q)
        with pytest.raises(NotImplementedError, match=r"torch\.func"):
            vmap(call)(q[None])
