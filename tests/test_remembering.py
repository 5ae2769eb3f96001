"""What is made from tensors is made once, and never given for others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from longspan import remembering
from longspan.remembering import MOST, Remembered, all_plain, are_lasting, lasting, plainly


class Sums:
    """Sums of tensors, and how often they were taken; each holds on to what it was given."""

    def __init__(self) -> None:
        self.known: Remembered[tuple[Tensor, list[Tensor]]] = Remembered()
        self.made = 0

    def _make(self, given: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        self.made += 1
        return torch.stack([x.sum() for x in given]).sum(), [x[:1] for x in given]

    def __call__(self, *tensors: Tensor, rest: Any = None, stamp: Tensor | None = None) -> Tensor:
        return self.known.found(self._make, tensors, rest, stamp=stamp)[0]


@pytest.fixture
def sums() -> Sums:
    return Sums()


def test_made_once_for_the_same_tensors(sums: Sums) -> None:
    x, y = torch.arange(5), torch.arange(3)
    first = sums(x, y)
    assert sums(x, y) is first and sums.made == 1 and int(first) == 13


def test_other_tensors_and_other_questions_are_told_apart(sums: Sums) -> None:
    x, y = torch.arange(5), torch.arange(5)
    given = [(x,), (y,), (x, x), (x, y), (y, x)]
    for rest in (1, 2):
        for tensors in given:
            assert int(sums(*tensors, rest=rest)) == 10 * len(tensors)
    assert sums.made == 2 * len(given)


def test_what_lasts_is_known_as_an_object() -> None:
    x, y = torch.arange(5), torch.arange(5)
    lasting(x, None)
    lasting(x)
    assert are_lasting([x]) and not are_lasting([y]) and not are_lasting([x, y])
    assert not are_lasting([x.view(5)])
    count = len(remembering._LASTING)
    del x
    assert len(remembering._LASTING) == count - 1


def test_one_tensor_given_twice_is_one_copy() -> None:
    known: Remembered[list[Tensor]] = Remembered()
    x, y = torch.arange(5), torch.arange(5)
    same = known.found(lambda given: given, (x, x), None)
    other = known.found(lambda given: given, (x, y), None)
    assert same[0] is same[1] and same[0] is not x
    assert other[0] is not other[1]


def written_by_numpy(x: Tensor) -> None:
    x.numpy()[0] = 70


def written_past_the_counter(x: Tensor) -> None:
    x.data[0] = 70


def given_other_memory(x: Tensor) -> None:
    x.data = torch.tensor([70, 1, 2, 3, 4])


def given_another_type(x: Tensor) -> None:
    x.data = torch.tensor([70.0, 1, 2, 3, 4])


def lengthened(x: Tensor) -> None:
    x.resize_(6)[5] = 70
    x[0] = 0


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda x: x.index_fill_(0, torch.tensor([0]), 70),
    "through a view": lambda x: x[:2].mul_(0).add_(torch.tensor([70, 1])),
    "by numpy": written_by_numpy,
    "past the counter": written_past_the_counter,
    "other memory": given_other_memory,
    "another type": given_another_type,
    "longer": lengthened,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(sums: Sums, change: str) -> None:
    x = torch.arange(5)
    before = sums(x)
    CHANGES[change](x)
    assert int(sums(x)) == 80 and sums.made == 2
    assert int(before) == 10
    assert int(sums(x)) == 80 and sums.made == 2
    assert len(sums.known) == 1


def check_stamps(sums: Sums, device: str) -> None:
    """With a stamp comes what it was made for, in whatever objects, and as it was then."""
    made = sums.made
    x, y = torch.arange(5, device=device), torch.arange(3, device=device)
    stamp, other = torch.empty(1), torch.empty(1)
    first = sums(x, stamp=stamp)
    assert sums(x.clone(), stamp=stamp) is first and sums.made == made + 1
    assert sums(x, stamp=stamp, rest=1) is not first
    # The same object, written to without telling.
    x[0] = 70
    assert int(sums(x, stamp=other)) == 80 and int(sums(y, stamp=torch.empty(1))) == 3
    assert sums(x, stamp=stamp) is first and int(first) == 10
    del stamp, other
    assert len(sums.known) == 0


def test_stamps(sums: Sums) -> None:
    check_stamps(sums, "cpu")
    with torch.inference_mode():
        check_stamps(sums, "cpu")


def test_what_was_made_does_not_change_with_the_tensors() -> None:
    known: Remembered[list[Tensor]] = Remembered()
    x = torch.arange(5)
    made = known.found(lambda given: given, (x,), None)[0]
    x.zero_()
    assert made.tolist() == [0, 1, 2, 3, 4]


def test_goes_with_a_tensor(sums: Sums) -> None:
    x, y = torch.arange(5), torch.arange(5)
    sums(x, y)
    sums(x)
    gone = weakref.ref(y)
    del y
    assert gone() is None and len(sums.known) == 1
    del x
    assert len(sums.known) == 0


def test_a_new_tensor_in_an_old_place_is_new(sums: Sums) -> None:
    places = set()
    for value in range(200):
        x = torch.full((4,), value)
        places.add((id(x), x.data_ptr()))
        assert int(sums(x)) == 4 * value
        del x
    assert len(places) < 200, "no place was used again, so that nothing was tested"
    assert sums.made == 200


def test_keeps_the_last_few(sums: Sums) -> None:
    many = [torch.tensor([value]) for value in range(MOST + 5)]
    for x in many:
        sums(x)
    assert len(sums.known) == MOST
    for x in many[5:]:
        sums(x)
    assert sums.made == MOST + 5
    sums(many[4])
    assert sums.made == MOST + 6


def test_no_graph_is_kept(sums: Sums) -> None:
    leaf = torch.ones(3, requires_grad=True)
    x, saved = leaf.square(), weakref.ref(leaf)
    found = sums(x)
    assert found.grad_fn is None and not found.requires_grad
    del leaf, x
    assert saved() is None


def test_many_threads() -> None:
    sums = Sums()
    shared = [torch.full((50,), value) for value in range(8)]

    def work(seed: int) -> None:
        for step in range(200):
            value = (seed + step) % 8
            assert int(sums(shared[value])) == 50 * value
            own = torch.full((3,), step)
            assert int(sums(own, shared[value])) == 3 * step + 50 * value

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert len(sums.known) <= MOST + 6


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return function(*args, **(kwargs or {}))


class Own(Tensor):
    pass


def in_a_mode(sums: Sums) -> None:
    x = torch.arange(5)
    with Passing():
        sums(x)


def fake(sums: Sums) -> None:
    with FakeTensorMode() as mode:
        x = torch.arange(5)
    sums(x)
    with mode:
        sums(x)


def traced(sums: Sums) -> None:
    x = torch.arange(5)
    graph = make_fx(sums)(x)
    assert int(graph(x + 1)) == 15


def traced_by_torchscript(sums: Sums) -> None:
    x = torch.arange(5)

    def program(x: Tensor) -> Tensor:
        return sums(x)

    graph = torch.jit.trace(program, (x,), check_trace=False)
    assert int(graph(x + 1)) == 15


def mapped(sums: Sums) -> None:
    x = torch.arange(10).view(2, 5)
    assert torch.vmap(sums)(x).tolist() == [10, 35]


def of_another_class(sums: Sums) -> None:
    sums(torch.arange(5).as_subclass(Own))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "program", [in_a_mode, fake, traced, traced_by_torchscript, mapped, of_another_class]
)
def test_nothing_is_kept_where_there_may_be_no_values(
    sums: Sums, program: Callable[[Sums], None]
) -> None:
    program(sums)
    assert len(sums.known) == 0 and sums.made > 0


def test_compiled_programs_compute_anew(sums: Sums) -> None:
    x = torch.arange(5)
    compiled = torch.compile(lambda x: sums(x) + 0, backend="eager", fullgraph=True)
    assert int(compiled(x)) == 10
    x.add_(1)
    assert int(compiled(x)) == 15 and len(sums.known) == 0


def is_plain(x: Tensor) -> bool:
    return all_plain([x]) and not x.is_inference() and x.tolist() == [0, 2, 4]


def test_what_is_made_plainly() -> None:
    """Whoever traces, transforms or watches."""

    @plainly()
    def made() -> Tensor:
        return torch.arange(3) * 2

    x = torch.arange(5.0)
    found = [made()]

    def used(x: Tensor) -> Tensor:
        found.append(made())
        return x.sum()

    with FakeTensorMode():
        used(torch.arange(5.0))
    with torch.inference_mode():
        used(x)
    with Passing():
        used(x)
    torch.func.grad(used)(x)
    torch.func.vmap(used)(x[None])
    torch.func.vmap(torch.func.grad(used))(x[None])
    make_fx(used, tracing_mode="symbolic")(x)
    assert len(found) >= 8 and all(is_plain(made) for made in found)
    # And all goes on as before.
    with FakeTensorMode(), torch.no_grad():
        made()
        assert not torch.is_grad_enabled() and not all_plain([torch.arange(3)])


def test_which_tensors_are_plain() -> None:
    x = torch.arange(3.0)
    assert all_plain([x, None, torch.nn.Parameter(x)]) and all_plain([])
    assert not all_plain([x, x.to("meta")]) and not all_plain([x.as_subclass(Own)])
    inside = []
    torch.func.grad(lambda y: inside.append(all_plain([y])) or y.sum())(x)
    torch.func.vmap(lambda y: inside.append(all_plain([y])) or y)(x)
    with FakeTensorMode() as mode:
        inside.append(all_plain([mode.from_tensor(x)]))
    assert inside == [False, False, False]


def test_inference_is_apart(sums: Sums) -> None:
    """Its tensors cannot be saved for a gradient, and have no versions."""
    x = torch.arange(5)
    with torch.inference_mode():
        inside = sums(x)
        assert sums(x) is inside
        own = torch.arange(4)
        assert int(sums(own)) == 6
        own.add_(1)
        assert int(sums(own)) == 10
    assert sums(x) is not inside and not sums(x).is_inference()


@pytest.mark.parametrize("change", ["in place", "through a view", "other memory", "another type"])
def test_what_pytorch_counts(change: str) -> None:
    """By which a change is told where values cannot be read without waiting."""
    x = torch.arange(5)
    before = remembering._counts(x)
    assert remembering._counts(x) == before
    CHANGES[change](x)
    assert remembering._counts(x) != before


@pytest.mark.gpu
class TestOnAGpu:
    def test_by_versions(self, sums: Sums) -> None:
        x = torch.arange(5, device="cuda")
        first = sums(x)
        assert sums(x) is first and sums.made == 1
        x.add_(1)
        assert int(sums(x)) == 15 and int(first) == 10
        del x
        assert len(sums.known) == 0

    def test_not_where_changes_are_not_counted(self, sums: Sums) -> None:
        with torch.inference_mode():
            sums(torch.arange(5, device="cuda"))
        assert sums.made == 1 and len(sums.known) == 0

    def test_stamps(self, sums: Sums) -> None:
        check_stamps(sums, "cuda")

    def test_streams_are_apart(self, sums: Sums) -> None:
        x, side = torch.arange(5, device="cuda"), torch.cuda.Stream()
        first = sums(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert sums(x) is not first
        assert sums(x) is first

    def test_graphs_compute_on_what_they_are_given(self, sums: Sums) -> None:
        x, side = torch.arange(5, device="cuda"), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sums(x)
        torch.cuda.current_stream().wait_stream(side)
        kept = len(sums.known)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = sums(x)
        assert len(sums.known) == kept
        x.add_(1)
        graph.replay()
        assert int(found) == 15 and int(sums(x)) == 15
