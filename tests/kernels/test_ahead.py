"""Kernels that a call lacks are compiled side by side, and then launched as if nothing had been."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from longspan.kernels import triton as triton_backend
from longspan.kernels.triton.ahead import LOCAL, compiled_together
from longspan.kernels.triton.arguments import captured

pytestmark = pytest.mark.skipif(not triton_backend.available(), reason="needs triton")


def fake(name: str, log: list[str], work: Callable[[], object] = lambda: None) -> Any:
    """A kernel without arguments, which says when it is compiled and launched."""
    from triton.runtime import _async_compile
    from triton.runtime.jit import JITFunction

    class Fake(JITFunction[Any]):
        arg_names = ()

        def __init__(self) -> None:
            self.made: str | None = None

        def compile_it(self) -> None:
            work()
            log.append(f"compiled {name}")
            self.made = name

        def warmup(self, *arguments: Any, grid: Any, **options: Any) -> str | None:
            mode = _async_compile.active_mode.get()
            if self.made is None and mode is not None:
                mode.executor.submit(self.compile_it)
            elif self.made is None:
                self.compile_it()
            return self.made

    return Fake()


@pytest.fixture
def log(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from longspan.kernels.triton import launching

    found: list[str] = []

    def launcher(compiled: str, arguments: Any) -> Callable[..., None]:
        return lambda grid, stream, values: found.append(f"launched {compiled}")

    monkeypatch.setattr(launching, "_COMPILED", {})
    monkeypatch.setattr(launching, "_kernel", launcher)
    monkeypatch.setattr(launching, "current_stream", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


def call_of(own: list[Any]) -> Callable[[], str]:
    from longspan.kernels.triton import launching

    def call() -> str:
        for kernel in own:
            launching.launch(kernel, (1,), (), {})
        return "done"

    return call


def test_all_at_once(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the other is being compiled too."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    meet = threading.Barrier(2)
    own = [fake(name, log, lambda: meet.wait(timeout=30)) for name in "ab"]
    assert compiled_together(call_of(own)) == "done"
    assert sorted(log[:2]) == ["compiled a", "compiled b"]
    assert log[2:] == ["launched a", "launched b"]
    log.clear()
    assert compiled_together(call_of(own)) == "done"
    assert log == ["launched a", "launched b"]


def test_what_is_likely_to_come(log: list[str]) -> None:
    """The backward's kernels are compiled with those of the forward, and not launched."""
    now, then = fake("now", log), fake("then", log)
    compiled_together(call_of([now]), call_of([then]))
    assert sorted(log[:2]) == ["compiled now", "compiled then"] and log[2:] == ["launched now"]
    log.clear()
    compiled_together(call_of([then]))
    # It is found where it was compiled.
    assert log == ["launched then"]


def test_what_is_likely_to_come_may_fail(log: list[str]) -> None:
    def fail() -> None:
        raise MemoryError

    assert compiled_together(call_of([fake("now", log)]), fail) == "done"
    assert log == ["compiled now", "launched now"]


def test_what_is_launched_before_is_launched_again(log: list[str]) -> None:
    first, second = fake("a", log), fake("b", log)
    compiled_together(call_of([first]))
    log.clear()
    compiled_together(call_of([first, second]))
    assert log == ["launched a", "compiled b", "launched a", "launched b"]


def test_a_rehearsal_leaves_nothing(log: list[str]) -> None:
    """What kernels did not write is not kept, and no notes are taken of it."""
    from longspan.kernels.triton import launching

    own, kept, whole = fake("a", log), [], []

    def call() -> None:
        with launching.recorded() as noted:
            launching.launch(own, (1,), (), {})
        kept.append(not captured(torch.device("cpu")))
        whole.append(noted.whole)

    compiled_together(call)
    assert kept == [False, True] and whole == [False, True]
    assert not LOCAL.rehearsing


def test_one_that_cannot_be_compiled(log: list[str]) -> None:
    def fail() -> None:
        raise ValueError("too many registers")

    from triton.runtime import _async_compile

    good, bad = fake("good", log), fake("bad", log, fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="registers"):
            compiled_together(call_of([good, bad]))
        assert not LOCAL.rehearsing and _async_compile.active_mode.get() is None
    # As without: what comes before it is launched.
    assert log == ["compiled good", "launched good", "launched good", "launched good"]


def test_in_a_graph(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is launched twice where a graph records it."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    compiled_together(call_of([fake("a", log), fake("b", log)]))
    assert log == ["compiled a", "launched a", "compiled b", "launched b"]
