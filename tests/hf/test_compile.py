"""Compiled models: one graph, the same function, the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn

from longspan.hf import use
from longspan.nn import Attention, BigBird, LearnedWindow, Mechanism, SlidingWindow
from longspan.normalizers import Entmax
from longspan.patterns import Pattern, Window
from longspan.weights import Alibi

from .tiny import hidden, model, padding, tokens

# What PyTorch says of its own code while it traces ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lru_cache.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]


def first_and_equals(input_ids: Tensor) -> Tensor:
    """The first token, and where the text says it again."""
    return input_ids == input_ids[:, :1]


Case = tuple[str, Pattern | Mechanism, Callable[..., Tensor] | None]

CASES: dict[str, Case] = {
    "pattern": ("bert", Window(2, 3), first_and_equals),
    "attention": (
        "bert",
        Attention(Window(4, 4), weight=Alibi(nn.Parameter(torch.rand(4))), normalizer=Entmax(1.5)),
        None,
    ),
    "bigbird": ("bert", BigBird(48, block=4), None),
    "learned window": ("bert", LearnedWindow(32, 4, mean_reach=3, max_reach=6), first_and_equals),
    "sliding window": ("bert", SlidingWindow(32, 4, left=2, most_global=4), first_and_equals),
    "gpt2": ("gpt2", Window(3, 0), None),
    "llama": ("llama", LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True), None),
    "mistral": ("mistral", Window(3, 0), None),
}


def with_mechanism(case: Case) -> Any:
    kind, mechanism, finder = case
    made = model(kind)
    use(made, mechanism, global_tokens=finder)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "longspan" in name:
                parameter.add_(0.2 * torch.randn(parameter.shape))
    for part in made.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return made


def same_gradients(found: Any, wanted: Any) -> None:
    compared = 0
    for (name, a), b in zip(found.named_parameters(), wanted.parameters(), strict=True):
        if b.grad is None:
            # Traced, what is not used has a gradient of 0.
            assert a.grad is None or not a.grad.any(), name
            continue
        scale = max(1.0, float(b.grad.abs().max()))
        torch.testing.assert_close(a.grad / scale, b.grad / scale, atol=1e-5, rtol=1e-5)
        compared += 1
    assert compared > 10


def run(made: Any, around: Any, length: int) -> Tensor:
    """A step of training, by a model or what is compiled of it."""
    ids, mask = tokens(2, length), padding("right", 2, length, 6)
    found = hidden(around, ids, mask, use_cache=False)
    weight = torch.linspace(-1, 1, found.numel()).sin().reshape(found.shape) * mask[..., None]
    made.zero_grad()
    (found * weight).sum().backward()
    return found[mask.bool()]


@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_all_lengths(name: str) -> None:
    """Outputs, gradients, and what a causal window has learned of the batches."""
    torch._dynamo.reset()
    made = with_mechanism(CASES[name]).train()
    wanted = deepcopy(made)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(made, fullgraph=True, backend=counter)
    for length in (19, 23, 31):
        found = run(made, compiled, length)
        torch.testing.assert_close(found, run(wanted, wanted, length), atol=1e-5, rtol=1e-5)
        same_gradients(made, wanted)
    # The first length as it came, and one program for all others; what finds global tokens runs
    # before the model, in a program of its own.
    assert counter.frame_count == (2 if CASES[name][2] is None else 4)
    for a, b in zip(made.buffers(), wanted.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_gradient_checkpointing_compiled(kind: str) -> None:
    torch._dynamo.reset()
    window = LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=kind == "llama")
    made = with_mechanism((kind, window, None)).train()
    made.enable_input_require_grads()
    wanted = deepcopy(made)
    made.gradient_checkpointing_enable({"use_reentrant": False})
    found = run(made, torch.compile(made, backend="aot_eager"), 19)
    torch.testing.assert_close(found, run(wanted, wanted, 19), atol=1e-5, rtol=1e-5)
    same_gradients(made, wanted)
    for a, b in zip(made.buffers(), wanted.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_decoder_without_a_cache_and_a_mask() -> None:
    """While it is traced, transformers takes every such text for several that are packed."""
    torch._dynamo.reset()
    made = model("llama")
    use(made, LearnedWindow(32, 4, mean_reach=3, max_reach=6, causal=True))
    wanted = hidden(made, tokens(), use_cache=False)
    found = hidden(torch.compile(made, backend="aot_eager"), tokens(), use_cache=False)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_layers_compiled_by_themselves() -> None:
    torch._dynamo.reset()
    made = with_mechanism(CASES["learned window"])
    wanted = hidden(made, tokens(), padding("right"))
    for layer in made.encoder.layer:
        layer.compile(fullgraph=True, backend="aot_eager")
    found = hidden(made, tokens(), padding("right"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_global_rows_that_are_counted() -> None:
    """How many rows there are is in the values: without `most_global` the graph breaks there, and
    the function is the same.
    """
    torch._dynamo.reset()
    made = with_mechanism(("bert", SlidingWindow(32, 4, left=2), first_and_equals))
    wanted = hidden(made, tokens(), padding("right"))
    found = hidden(torch.compile(made, backend="aot_eager"), tokens(), padding("right"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_inductor() -> None:
    torch._dynamo.reset()
    made = with_mechanism(CASES["learned window"]).train()
    wanted = deepcopy(made)
    found = run(made, torch.compile(made, fullgraph=True), 19)
    torch.testing.assert_close(found, run(wanted, wanted, 19), atol=1e-5, rtol=1e-5)
    same_gradients(made, wanted)
