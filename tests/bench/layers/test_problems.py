"""What is timed computes what it says. Nothing here is about speed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.bench.contenders import Work
from longspan.bench.layers.attention_layers import bigbird_layer, longformer_layer
from longspan.bench.layers.encoders import CEILING, OURS, THEIRS, NoAttention, encoder
from longspan.bench.layers.readers import reader
from longspan.bench.problem import Problem, Results
from longspan.bench.records import Outcome, Sample
from longspan.bench.runner import QUICK, measure

pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")


def works(problem: Problem) -> dict[str, Work]:
    return {one.name: one.make(one.size) for one in problem.contenders}


def shape(work: Work) -> torch.Size:
    found = work.forward()
    assert isinstance(found, Tensor)
    return found.shape


@pytest.mark.parametrize("make", [longformer_layer, bigbird_layer])
def test_layers_have_the_same_work_before_and_after_attention(make: Any) -> None:
    made = works(make(True))
    ours, theirs = made["longspan"], made["Hugging Face"]
    assert shape(ours) == shape(theirs)
    # As many projections, biases and norms; the input is a leaf too.
    assert sorted(x.numel() for x in ours.leaves) == sorted(x.numel() for x in theirs.leaves)
    for work in made.values():
        work.with_gradients()()


def test_longformers_layer_is_ours_with_the_same_weights() -> None:
    """Weights of theirs in ours: the two are one function."""
    from longspan.bench.layers import attention_layers

    problem = longformer_layer(True)
    ours, theirs = problem.contenders
    mine, hers = ours.make(ours.size), theirs.make(theirs.size)
    # Theirs: query, key, value, their global ones, dense, norm. Ours: q, k, v, out, global, norm.
    order = [0, 1, 2, 12 // 2, 3, 4, 5]
    pairs = [(hers.leaves[1 + 2 * at], hers.leaves[2 + 2 * at]) for at in order]
    given = [tensor for pair in pairs for tensor in pair] + list(hers.leaves[-2:])
    with torch.no_grad():
        for own, other in zip(mine.leaves[1:], given, strict=True):
            own.copy_(other)
    assert torch.equal(mine.leaves[0], hers.leaves[0])
    expected, found = hers.forward(), mine.forward()
    assert isinstance(expected, Tensor) and isinstance(found, Tensor)
    # Norms differ in their ε; rows of the window and of the global token agree.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert attention_layers.REACH == 128


def tiny_encoder(**more: Any) -> Problem:
    return encoder(4096, 1.9, quick=True, layers=1, **more)


def tiny_reader(**more: Any) -> Problem:
    return reader(4096, 1.7, quick=True, **more)


@pytest.mark.parametrize("make", [tiny_encoder, tiny_reader])
def test_encoders_learn_in_all_their_parts(make: Any) -> None:
    made = works(make())
    assert list(made) == [OURS, THEIRS, CEILING]
    sizes = {name: sum(x.numel() for x in work.leaves) for name, work in made.items()}
    assert sizes[THEIRS] == sizes[CEILING] < sizes[OURS]
    assert len({shape(work) for work in made.values()}) == 1
    for work in made.values():
        # `torch.autograd.grad` raises for a parameter that is not used.
        work.with_gradients()()


def test_windows_differ_from_token_to_token() -> None:
    from longspan.bench.layers.encoders import _learned, _work

    models: list[Any] = []

    def keep(model: Any, size: Any) -> None:
        _learned(model, size)
        models.append(model)

    size = tiny_encoder().contenders[0].size
    _work(size, 1, keep, "cpu", None).forward()
    reach = models[0].encoder.layer[0].attention.self.longspan.last_reach
    assert float(reach.mean()) == pytest.approx(64, rel=1e-4)
    assert float(reach.std()) > 2


def test_no_attention_gives_values_back_and_gradients_to_all() -> None:
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    y = NoAttention()(q, k, v)
    assert torch.equal(y, v)
    y.backward(torch.full_like(y, 2.0))
    assert all(x.grad is not None and (x.grad == 2).all() for x in (q, k, v))


# The compiler looks at the input of a layer, which is no leaf, and makes functions of autograd.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("make", [tiny_encoder, tiny_reader])
def test_layers_are_compiled_whole_and_once(make: Any) -> None:
    """The way of a GPU, with a compiler that only traces."""
    torch.compiler.reset()
    counts = torch._dynamo.utils.counters
    counts.clear()
    problem = make(dtype=torch.bfloat16, compiler="aot_eager")
    found = list(measure(problem, True, torch.get_num_threads(), QUICK, lambda name: None))
    assert all(outcome.both is not None for outcome in found)
    assert counts["stats"]["unique_graphs"] == 3
    assert not counts["graph_break"]
    torch.compiler.reset()


def test_figures() -> None:
    problem = tiny_encoder()
    seconds = {OURS: 1.0, THEIRS: 2.5, CEILING: 0.5}
    outcomes = [
        Outcome(problem="encoder-4096", name=name, both=Sample(time, time, time, 3))
        for name, time in seconds.items()
    ]
    ratio, ceiling = problem.judge(Results("encoder-4096", outcomes))
    assert ratio.values == (None, 2.5) and ratio.met
    assert ceiling.values == (None, 5.0) and ceiling.met is None
