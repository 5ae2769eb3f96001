"""Calls like one before are played from a backend's notes: which are, and with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import longspan as ls
from longspan.functional import again, passes
from longspan.functional.again import Tape
from longspan.functional.encoding import Meaning
from longspan.functional.problems import Settings
from longspan.normalizers import Entmax, Softmax
from longspan.patterns import Causal, Global, Window
from longspan.weights import Alibi, Bell

N = 24
WINDOW = Window(5, 3)

Inputs = dict[str, Tensor]


class Notes:
    """A backend's notes on every call; plays what the torch backend computes."""

    def __init__(self) -> None:
        self.played: list[str] = []
        self.hold = True

    def tape(
        self, q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str,
        inputs: Sequence[Tensor], which: str,
    ) -> Tape:  # fmt: skip
        notes = self
        shapes = [x.shape for x in inputs]

        class Played:
            def holds(self) -> bool:
                return notes.hold

            def play(self, inputs: Sequence[Tensor]) -> list[Tensor]:
                assert [x.shape for x in inputs] == shapes
                notes.played.append(which)
                q, k, v, *rest = inputs
                learned = rest if which == "forward" else rest[3:]
                own = meaning
                if learned:
                    (bell,) = meaning.weights
                    assert isinstance(bell, Bell)
                    other = Bell(learned[0], threshold=bell.threshold, form=bell.form)
                    own = meaning._replace(weights=(other,))
                if which == "forward":
                    return list(passes.forward(q, k, v, own, settings, "torch"))
                out, limits, grad = rest[:3]
                wanted = [True] * len(learned)
                return passes.backward(
                    grad, out, limits, q, k, v, own, settings, "torch", learned, wanted
                )

        return Played()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    made = Notes()
    monkeypatch.setattr(again, "_on_current_gpu", lambda x: True)
    monkeypatch.setattr(again, "_tape", made.tape)
    monkeypatch.setattr(again, "_KNOWN", {})
    monkeypatch.setattr(again, "_TRIES", {})
    yield made


def made(seed: int = 0, n: int = N, **more: Any) -> Inputs:
    source = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(2, 2, n, 16, generator=source, **more) for name in "qkv"}
    found["variance"] = torch.rand(2, 2, n, generator=source) * 30 + 1
    return {name: x.requires_grad_() for name, x in found.items()}


def attend(x: Inputs, pattern: Any = WINDOW, **options: Any) -> Tensor:
    return ls.attention(x["q"], x["k"], x["v"], pattern, **options)


def bell(x: Inputs, **options: Any) -> Tensor:
    return attend(x, None, weight=Bell(x["variance"], threshold=0.4), **options)


def step(x: Inputs, call: Callable[..., Tensor] = attend, **options: Any) -> list[Tensor]:
    y = call(x, **options)
    names = [name for name in x if x[name].requires_grad and (call is bell or name in "qkv")]
    grads = torch.autograd.grad(y, [x[name] for name in names], torch.cos(y.detach()))
    return [y, *grads]


@pytest.mark.parametrize("call", [attend, bell])
def test_played_from_the_second_time_on(notes: Notes, call: Callable[..., Tensor]) -> None:
    step(made(), call)
    assert notes.played == []
    # The backward of a call that is played finds no notes at first, and leaves some.
    step(made(1), call)
    assert notes.played == ["forward"]
    for seed in (2, 3):
        notes.played.clear()
        found = step(made(seed), call)
        assert notes.played == ["forward", "backward"]
        want = step(made(seed), call, backend="torch")
        assert notes.played == ["forward", "backward"]
        for a, b in zip(found, want, strict=True):
            torch.testing.assert_close(a, b)


def test_only_wanted_gradients(notes: Notes) -> None:
    for _ in range(3):
        x = made()
        x["variance"].requires_grad_(False)
        found = step(x, bell)
        assert len(found) == 4
    assert notes.played[-2:] == ["forward", "backward"]


def test_without_gradients(notes: Notes) -> None:
    with torch.no_grad():
        for seed in range(3):
            y = attend(made(seed))
            assert y.grad_fn is None
    assert notes.played == ["forward"] * 2


def test_a_second_derivative_raises(notes: Notes) -> None:
    for _ in range(3):
        x = made()
        y = attend(x)
    assert notes.played
    (g,) = torch.autograd.grad(y.square().sum(), x["q"], create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        torch.autograd.grad(g.sum(), x["q"])


def test_a_gradient_that_lies_otherwise_has_notes_of_its_own(notes: Notes) -> None:
    for _ in range(3):
        step(made())
    for turn in range(2):
        x = made()
        notes.played.clear()
        y = attend(x)
        grad = torch.ones(2, 2, 16, N).transpose(2, 3)
        torch.autograd.grad(y, x["q"], grad)
        assert notes.played == ["forward", "backward"][: 1 + turn]


def test_notes_that_hold_no_more_are_left_alone(notes: Notes) -> None:
    for _ in range(3):
        step(made())
    notes.played.clear()
    notes.hold = False
    step(made())
    assert notes.played == []
    notes.hold = True
    y = attend(x := made())
    notes.hold = False
    torch.autograd.grad(y.sum(), x["q"])
    assert notes.played == ["forward"]


def shared(x: Inputs) -> Tensor:
    return ls.attention(x["q"], x["q"], x["v"], WINDOW)


def turned(x: Inputs) -> Tensor:
    q = x["q"].transpose(1, 2).contiguous().transpose(1, 2)
    return ls.attention(q, x["k"], x["v"], WINDOW)


OTHERS: dict[str, Callable[[], Tensor]] = {
    "another pattern": lambda: attend(made(), Window(5, 4)),
    "every pair": lambda: attend(made(), None),
    "a weight": lambda: bell(made()),
    "a longer one": lambda: attend(made(n=N + 1)),
    "another dtype": lambda: attend(made(dtype=torch.bfloat16)),
    "another scale": lambda: attend(made(), scale=0.5),
    "one tensor twice": lambda: shared(made()),
    "other strides": lambda: turned(made()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_calls_are_told_apart(notes: Notes, name: str) -> None:
    for _ in range(3):
        attend(made())
    notes.played.clear()
    y = OTHERS[name]()
    assert notes.played == []
    torch.testing.assert_close(OTHERS[name](), y)
    assert notes.played == ["forward"]


def misaligned(x: Inputs) -> Tensor:
    q = torch.zeros(x["q"].numel() + 1)[1:].view(x["q"].shape).copy_(x["q"].detach())
    return ls.attention(q, x["k"], x["v"], WINDOW)


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def watched(x: Inputs) -> Tensor:
    with Watching():
        return attend(x)


NEVER: dict[str, Callable[[Inputs], Tensor]] = {
    "padding": lambda x: attend(x, key_padding=torch.ones(2, N, dtype=torch.bool)),
    "dropout": lambda x: attend(x, dropout=0.5),
    "entmax": lambda x: attend(x, normalizer=Entmax(1.5)),
    "other weights": lambda x: attend(x, weight=Alibi(torch.ones(2))),
    "a list of weights": lambda x: attend(x, weight=[Bell(x["variance"])]),
    "a variance for all": lambda x: attend(x, weight=Bell(4.0)),
    "a pattern with tensors": lambda x: attend(x, Global(torch.tensor([1]))),
    "an exempt one with tensors": lambda x: attend(
        x, weight=Bell(x["variance"], threshold=0.5, exempt=Global(torch.tensor([1])))
    ),
    "another backend": lambda x: attend(x, backend="reference"),
    "memory that begins anywhere": misaligned,
    "a watched call": watched,
}


@pytest.mark.parametrize("name", NEVER)
def test_never_played(notes: Notes, name: str) -> None:
    for _ in range(4):
        NEVER[name](made())
    assert notes.played == [] and len(again._KNOWN) == len(again._TRIES) == 0


def test_a_softmax_that_is_named_is_no_other(notes: Notes) -> None:
    for _ in range(2):
        attend(made(), normalizer=Softmax())
    assert notes.played == ["forward"]


def test_bad_arguments_raise_as_ever(notes: Notes) -> None:
    for _ in range(3):
        attend(made())
    for options in ({"scale": "large"}, {"dropout": torch.tensor(0.0)}, {"backend": "none"}):
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            attend(made(), **options)
    with pytest.raises(TypeError, match="pattern"):
        attend(made(), "window")


def test_under_autocast_to_another_dtype(notes: Notes) -> None:
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        for dtype, played in ((torch.bfloat16, 0), (torch.float32, 1)):
            torch.set_autocast_dtype("cuda", dtype)
            for _ in range(2):
                attend(made())
            assert len(notes.played) == played
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def test_no_more_is_kept_than_there_is_room_for(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "MOST_KNOWN", 4)
    for left in range(9):
        attend(made(), Window(left, 0))
    assert 0 < len(again._KNOWN) <= 4 and len(again._TRIES) <= 4


def test_nobody_asks_forever(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(again, "_tape", lambda *given: asked.append(given))
    for _ in range(3 * again.MOST_TRIES):
        attend(made(), Causal())
    assert len(asked) == again.MOST_TRIES
