"""Launches that go straight to a compiled kernel, and can be noted down.

Triton looks every argument over before it finds the kernel that it compiled for such ones, which
takes longer than most kernels take to run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from .driver import Kernel, Unknown, current_stream, load

__all__ = ["Recording", "empty", "empty_like", "recorded", "spoil", "start", "unrecorded"]


class _Known(NamedTuple):
    """A compiled kernel, the constants that its arguments end with, and how the driver launches it;
    None where Triton does.
    """

    compiled: Any
    constants: tuple[Any, ...]
    kernel: Kernel | None


_COMPILED: dict[tuple[Any, ...], _Known] = {}
MOST_COMPILED = 4096


class Started(NamedTuple):
    """One launch."""

    compiled: Any
    grid: tuple[int, int]
    arguments: tuple[Any, ...]


@dataclass
class Recording:
    """What a call has launched, and the memory that it has made for it.

    Attributes:
        whole: whether that is all it did.
    """

    launches: list[Started] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)
    whole: bool = True


class _Local(threading.local):
    recording: Recording | None = None


_LOCAL = _Local()


@contextmanager
def recorded() -> Iterator[Recording]:
    """Notes down what this thread launches and makes."""
    with _recording(Recording()) as found:
        assert found is not None
        yield found


@contextmanager
def unrecorded() -> Iterator[None]:
    """Notes down nothing: what is made here is kept, and there the next time."""
    with _recording(None):
        yield


@contextmanager
def _recording(new: Recording | None) -> Iterator[Recording | None]:
    before = _LOCAL.recording
    _LOCAL.recording = new
    try:
        yield new
    finally:
        _LOCAL.recording = before


def spoil() -> None:
    """Says that something is done which no note tells of."""
    if _LOCAL.recording is not None:
        _LOCAL.recording.whole = False


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for what a call computes."""
    made = torch.empty(shape, dtype=dtype, device=device)
    if _LOCAL.recording is not None:
        _LOCAL.recording.made.append(made)
    return made


def empty_like(x: Tensor) -> Tensor:
    """Memory for a gradient, which lies as what it is of."""
    made = torch.empty_like(x)
    if _LOCAL.recording is not None:
        _LOCAL.recording.made.append(made)
    return made


def start(
    kernel: Any,
    key: tuple[Any, ...],
    grid: tuple[int, int],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    **options: int,
) -> None:
    """Launches a kernel.

    Args:
        key: what tells this launch from others of the kernel that Triton would compile apart: all
            that its constants, options and numbers, and its tensors' dtypes, depend on. Tensors
            start at multiples of 16 bytes.
        grid: programs.
        arguments: without the constants, which are the kernel's last.
    """
    own = kernel, *key
    known = _COMPILED.get(own)
    if known is None:
        if not isinstance(kernel, JITFunction):
            # The interpreter compiles nothing.
            kernel[grid](*arguments, **constants, **options)
            spoil()
            return
        if len(_COMPILED) >= MOST_COMPILED:
            _COMPILED.clear()
        compiled = kernel.warmup(*arguments, grid=grid, **constants, **options)
        names = kernel.arg_names[len(arguments) :]
        last = tuple(constants[name] for name in names)
        known = _COMPILED[own] = _Known(compiled, last, _kernel(compiled, arguments))
    if known.kernel is not None:
        known.kernel(grid, current_stream(), arguments)
    else:
        known.compiled[grid[0], grid[1], 1](*arguments, *known.constants)
    if _LOCAL.recording is not None:
        _LOCAL.recording.launches.append(Started(known.compiled, grid, arguments))


def _kernel(compiled: Any, arguments: tuple[Any, ...]) -> Kernel | None:
    load(compiled)
    try:
        return Kernel(compiled, arguments)
    except Unknown:
        return None
