"""Launches that go straight to a compiled kernel, and can be noted down.

Triton looks every argument over before it finds the kernel that it compiled for such ones, which
takes longer than most kernels take to run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from .ahead import LOCAL, NotCompiled
from .driver import Kernel, current_stream, load
from .parameters import Leaves, Unknown

__all__ = [
    "Recording",
    "empty",
    "empty_like",
    "launch",
    "recorded",
    "spoil",
    "start",
    "unrecorded",
]


class _Known(NamedTuple):
    """A compiled kernel, the constants that its arguments end with, and how the driver launches it;
    None where Triton does.
    """

    compiled: Any
    constants: tuple[Any, ...]
    kernel: Kernel | None


# By all that Triton may compile a kernel for. Of the kernel itself it is the id: its hash is its
# source's, behind a lock; and it lives as long as its module.
_COMPILED: dict[tuple[Any, ...], _Known] = {}
# By what it has compiled.
_KERNELS: dict[Any, Kernel | None] = {}
MOST_COMPILED = 4096


class Started(NamedTuple):
    """One launch."""

    compiled: Any
    grid: tuple[int, ...]
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
    grid: tuple[int, ...],
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
    if not isinstance(kernel, JITFunction):
        _interpret(kernel, grid, arguments, constants)
        return
    own = id(kernel), *key
    _start(kernel, own, grid, arguments, Leaves(arguments).values, constants, options)


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    leaves: Leaves | None = None,
    /,
    **options: int,
) -> None:
    """As `start`, for arguments of any kind: the key is read from them.

    Args:
        leaves: of the arguments, where they are known already.
    """
    if not isinstance(kernel, JITFunction):
        _interpret(kernel, grid, arguments, constants)
        return
    if leaves is None:
        leaves = Leaves(arguments)
    key = (
        id(kernel), torch.cuda.current_device(), *constants.values(), tuple(options.items()),
        tuple(leaves.kinds), _misaligned(leaves.addresses),
    )  # fmt: skip
    _start(kernel, key, grid, arguments, leaves.values, constants, options)


def _interpret(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    """Runs a kernel in Triton's interpreter, which compiles nothing."""
    kernel[grid](*arguments, **constants)
    spoil()


def _misaligned(addresses: list[int]) -> tuple[int, ...]:
    """How far tensors start from multiples of 16 bytes; nothing, most often, for not at all."""
    if not reduce(or_, addresses, 0) & 15:
        return ()
    return tuple([address & 15 for address in addresses])


def _start(
    kernel: Any,
    key: tuple[Any, ...],
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    values: list[Any],
    constants: dict[str, Any],
    options: dict[str, int],
) -> None:
    known = _COMPILED.get(key)
    if LOCAL.rehearsing:
        spoil()
        if known is None:
            _compiled(kernel, grid, arguments, constants | options)
        return
    if known is None:
        # A graph that is being captured would have twice what was launched until here.
        if LOCAL.only_compiled and not torch.cuda.is_current_stream_capturing():
            raise NotCompiled
        if len(_COMPILED) >= MOST_COMPILED:
            _COMPILED.clear()
        compiled = _compiled(kernel, grid, arguments, constants | options)
        names = kernel.arg_names[len(arguments) :]
        last = tuple(constants[name] for name in names)
        known = _COMPILED[key] = _Known(compiled, last, _kernel(compiled, arguments))
    if known.kernel is not None:
        known.kernel(grid, current_stream(), values)
    else:
        known.compiled[(*grid, 1, 1)[:3]](*arguments, *known.constants)
    if _LOCAL.recording is not None:
        _LOCAL.recording.launches.append(Started(known.compiled, grid, arguments))


def _compiled(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    # From Triton 3.10 on products and sums are fused only where that is said; 3.9 warns of it.
    return kernel.warmup(*arguments, grid=grid, **{"enable_fp_fusion": True} | options)


def _kernel(compiled: Any, arguments: tuple[Any, ...]) -> Kernel | None:
    """How the driver launches a kernel; None where Triton has to."""
    if compiled not in _KERNELS:
        if len(_KERNELS) >= MOST_COMPILED:
            _KERNELS.clear()
        try:
            _KERNELS[compiled] = _loaded(compiled, arguments)
        except Unknown:
            _KERNELS[compiled] = None
    return _KERNELS[compiled]


def _loaded(compiled: Any, arguments: tuple[Any, ...]) -> Kernel:
    if torch.version.cuda is None:
        raise Unknown("the driver is not CUDA's")
    load(compiled)
    return Kernel(compiled, arguments)
