"""Traced programs: `torch.compile` and `torch.export` see one operator, and hold for any length."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch._dynamo.testing
import torch.utils._pytree
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import longspan as ls
from longspan.functional.attention import prepared
from longspan.functional.encoding import encode
from longspan.functional.ops import attention_backward_op, attention_op
from longspan.normalizers import Entmax
from longspan.patterns import (
    Causal,
    Global,
    Mask,
    Pattern,
    PerHead,
    Random,
    SameDocument,
    Window,
    bigbird,
    longformer,
    sparse_fixed,
)
from longspan.weights import Alibi, Bell, Bias, Ramp

# What PyTorch says of its own code while it traces ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lru_cache.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning"),
]

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
DRAWN = Random(2, block=16, length=256)

CALLS: dict[str, Call] = {
    "window": lambda q, k, v: ls.attention(q, k, v, Window(5, 3) | Global(1)),
    "entmax": lambda q, k, v: ls.attention(q, k, v, Causal(), normalizer=Entmax(1.5)),
    "bell": lambda q, k, v: ls.attention(
        q,
        k,
        v,
        weight=Bell(q.square().sum(-1) + 1, threshold=0.5, max_reach=16, exempt=Global(2)),
    ),
    "drawn": lambda q, k, v: ls.attention(q, k, v, DRAWN | Window(2, 2)),
    "heads": lambda q, k, v: ls.attention(q, k, v, PerHead([Causal(), Window(3, 3)])),
    "bigbird": lambda q, k, v: ls.attention(q, k, v, bigbird(256, block=16)),
    "longformer": lambda q, k, v: ls.attention(q, k, v, longformer(4, 1)),
    "fixed": lambda q, k, v: ls.attention(q, k, v, sparse_fixed(8, 2)),
    "global mask": lambda q, k, v: ls.attention(
        q, k, v, Window(3, 3) | Global(k.sum(dim=(1, 3)) > 5)
    ),
    "mask": lambda q, k, v: ls.attention(q, k, v, Mask((q @ k.transpose(-1, -2)) > 0)),
    "documents": lambda q, k, v: ls.attention(
        q, k, v, SameDocument((torch.arange(k.shape[2]) // 7).expand(k.shape[0], -1))
    ),
    "several weights": lambda q, k, v: ls.attention(
        q,
        k,
        v,
        weight=[
            Ramp(torch.tensor([3.0, 5.0]), 2.0),
            Alibi(torch.tensor([0.1, 0.2])),
            Bias(q @ k.transpose(-1, -2)),
        ],
    ),
    "dropout": lambda q, k, v: ls.attention(q, k, v, Window(5, 3), dropout=0.2),
    "padding": lambda q, k, v: ls.attention(q, k, v, key_padding=k.sum(dim=(1, 3)) > 0, scale=0.3),
    "reference": lambda q, k, v: ls.attention(
        q, k, v, Window(5, 3) | Global(1), normalizer=Entmax(1.5), backend="reference"
    ),
    "map": lambda q, k, v: ls.attention_map(q, k, Window(5, 3)) @ v,
}


def inputs(n: int) -> list[Tensor]:
    return [torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3)]


def with_gradients(call: Call, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    y = call(q, k, v)
    return [y, *torch.autograd.grad(y.sum(), (q, k, v))]


@pytest.mark.parametrize("name", CALLS)
def test_compiles_whole_and_once_for_all_lengths(name: str) -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(CALLS[name], fullgraph=True, backend=counter)
    for n in (40, 41, 57, 90, 130, 64):
        tensors = inputs(n)
        found, want = with_gradients(compiled, *tensors), with_gradients(CALLS[name], *tensors)
        for a, b in zip(found, want, strict=True):
            torch.testing.assert_close(a, b)
    # The first length as it came, and one program for all others.
    assert counter.frame_count == 2


def test_classes_of_one_name_are_not_mistaken_for_each_other() -> None:
    """As a cell of a notebook defines a class again, while programs of the old one are there."""

    def near(far: int) -> Pattern:
        class Near(Pattern):
            def contains(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
                return ((i - j).abs() <= far)[None, None]

        return Near()

    torch._dynamo.reset()
    q, k, v = (x.detach() for x in inputs(40))
    patterns = [near(1), near(20)]
    programs = [
        torch.compile(lambda q, k, v, p=p: ls.attention(q, k, v, p), backend="aot_eager")
        for p in patterns
    ]
    for number in (0, 1, 0):
        want = ls.attention(q, k, v, Window((1, 20)[number], (1, 20)[number]))
        torch.testing.assert_close(programs[number](q, k, v), want)


@pytest.mark.slow
def test_inductor() -> None:
    torch._dynamo.reset()
    model = LearnedWindow()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for n in (33, 70):
        q, k, v = inputs(n)
        torch.testing.assert_close(compiled(q, k, v), model(q, k, v))
        compiled(q, k, v).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


class LearnedWindow(nn.Module):
    """A bell whose variance is predicted, and entmax with a learned α."""

    def __init__(self) -> None:
        super().__init__()
        self.width = nn.Linear(8, 1)
        self.alpha = nn.Parameter(torch.tensor([1.2, 1.7]))
        self.slopes = nn.Parameter(torch.tensor([0.1, 0.2]))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        variance = nn.functional.softplus(self.width(q)[..., 0]) * 20 + 1
        return ls.attention(
            q,
            k,
            v,
            Causal(),
            weight=[Bell(variance, threshold=0.5, max_reach=16), Alibi(self.slopes)],
            normalizer=Entmax(self.alpha),
        )


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_gradients_lie_in_memory_as_was_promised(backend: str) -> None:
    """Also of tensors that lie in it in another order, as what einsum gives does."""
    q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in inputs(20))
    variance = (torch.rand(2, 1, 20) * 30 + 1).transpose(0, 1)
    bias = torch.randn(2, 1, 20, 20).transpose(0, 1).transpose(2, 3)
    call = prepared(q, k, v, weight=[Bell(variance, threshold=0.5), Bias(bias)])
    e = encode(call.meaning)
    rest = (e.ints, e.floats, e.text, call.settings.scale, 0.0, backend)
    out, limits = attention_op(q, k, v, None, None, None, e.learned, e.fixed, *rest)
    args = (torch.randn_like(out), out, limits, q, k, v, *[None] * 3, e.learned, e.fixed, *rest)
    found = attention_backward_op(*args, [True, True])
    with FakeTensorMode() as mode:
        moved = torch.utils._pytree.tree_map_only(Tensor, mode.from_tensor, args)
        promised = attention_backward_op(*moved, [True, True])
    assert [x.stride() for x in found] == [x.stride() for x in promised]


@pytest.mark.parametrize("strict", [True, False])
def test_exports_for_any_length(strict: bool) -> None:
    model = LearnedWindow()
    length = torch.export.Dim("length", min=2, max=256)
    shapes = ({2: length}, {2: length}, {2: length})
    example = tuple(x.detach() for x in inputs(40))
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("longspan.attention.default") == 1
    for n in (2, 64, 77, 200):
        q, k, v = (x.detach() for x in inputs(n))
        torch.testing.assert_close(program.module()(q, k, v), model(q, k, v))


@pytest.mark.parametrize("normalizer", [None, Entmax(1.5)], ids=str)
def test_opcheck(normalizer: Entmax | None) -> None:
    q, k, v = inputs(20)
    variance = (torch.rand(1, 2, 20) * 30 + 1).requires_grad_()
    call = prepared(
        q,
        k,
        v,
        Window(5, 3) | Global(torch.tensor([0, 3])),
        weight=Bell(variance, threshold=0.5),
        normalizer=normalizer,
    )
    e = encode(call.meaning)
    rest = (e.ints, e.floats, e.text, call.settings.scale, 0.0, "torch")
    args = (q, k, v, None, None, None, e.learned, e.fixed, *rest)
    torch.library.opcheck(attention_op, args)
    with torch.no_grad():
        out, limits = attention_op(*args)
        detached = [x.detach() for x in (q, k, v)]
        learned = [x.detach() for x in e.learned]
        grad = torch.randn_like(out)
        torch.library.opcheck(
            attention_backward_op,
            (grad, out, limits, *detached, *[None] * 3, learned, e.fixed, *rest, [True]),
        )


def test_checkpointing_recomputes_the_same() -> None:
    q, k, v = inputs(50)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ls.attention(q, k, v, Window(5, 5), dropout=0.3)

    def checkpointed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(call, q, k, v, use_reentrant=False)

    for a, b in zip(
        with_gradients(checkpointed, q, k, v), with_gradients(call, q, k, v), strict=True
    ):
        assert torch.equal(a, b)
