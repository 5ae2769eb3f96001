"""Launches by CUDA's driver itself.

Triton looks at every argument of every launch in Python, and encodes every tensor's descriptor
anew; and before a kernel's first launch some versions run a C compiler, for longer than the kernel
took to compile. Here parameters lie in memory as the kernel reads them, which its PTX tells. A
`Kernel` is launched with any arguments; a `Launch` is one that comes again with other addresses,
and writes only these.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime import driver

from .parameters import (
    ALIGNED,
    DESCRIPTOR,
    Descriptor,
    described,
    flat,
    format_of,
    kinds_of,
    parameters_of,
    places_of,
    size_of,
    with_descriptors,
)

__all__ = ["Kernel", "Launch", "Place", "current_stream", "load"]

L2_PROMOTION_128 = 2
INVALID_CONTEXT = 201
MOST_ENCODED = 256
MOST_READY = 64


class Place(NamedTuple):
    """An address: that of one of a call's tensors, by number, and bytes from there."""

    number: int
    offset: int


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`, whose value is a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


# That a kernel may be launched before the one before it is done, for which it waits by itself.
OVERLAPPING = _Attribute(6, 0, (ctypes.c_int * 16)(1))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z")),
        *((name, ctypes.c_uint) for name in ("block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]

    def set_grid(self, grid: Sequence[int]) -> None:
        self.grid_x, self.grid_y, self.grid_z = (*grid, 1, 1)[:3]


class _Encoded:
    """Descriptors as the driver has encoded them: the same ones come again and again."""

    def __init__(self) -> None:
        self._known: dict[Hashable, bytes] = {}

    def copied(self, key: Hashable, at: int) -> bool:
        """Writes the descriptor that is known by a key to a place in memory, if there is one."""
        known = self._known.get(key)
        if known is None:
            return False
        ctypes.memmove(at, known, DESCRIPTOR)
        return True

    def keep(self, key: Hashable, at: int) -> None:
        """Remembers the descriptor at a place in memory."""
        if len(self._known) >= MOST_ENCODED:
            self._known.clear()
        self._known[key] = ctypes.string_at(at, DESCRIPTOR)


def _config_of(compiled: Any) -> _Config:
    """How a kernel is launched, but for its grid and stream."""
    found = _Config()
    found.block_x, found.block_y, found.block_z = 32 * compiled.metadata.num_warps, 1, 1
    found.shared = compiled.metadata.shared
    if compiled.metadata.launch_pdl:
        found.attributes, found.attribute_count = ctypes.addressof(OVERLAPPING), 1
    return found


def _start(call: tuple[Any, ...]) -> None:
    result = _driver().cuLaunchKernelEx(*call)
    if result == INVALID_CONTEXT:
        # A thread in which nothing has used CUDA before.
        _driver().cuCtxSetCurrent(_primary_context(torch.cuda.current_device()))
        result = _driver().cuLaunchKernelEx(*call)
    if result:
        raise RuntimeError(f"CUDA's driver did not launch a kernel: error {result}")


class _Parameters:
    """Memory in which a kernel's parameters lie, one after the other.

    Attributes:
        memory: all of it; the first parameter is `skipped` bytes from its beginning, at `start`, a
            multiple of ALIGNED.
        pointers: to each parameter; the memory lives as long as they do.
        words: eight bytes each.
    """

    def __init__(self, offsets: Sequence[int], end: int) -> None:
        self.memory = ctypes.create_string_buffer(end + ALIGNED)
        self.skipped = -ctypes.addressof(self.memory) % ALIGNED
        self.start = ctypes.addressof(self.memory) + self.skipped
        pointers: Any = (ctypes.c_void_p * len(offsets))(*[self.start + at for at in offsets])
        pointers.memory = self.memory
        self.pointers = pointers
        self.words = (ctypes.c_uint64 * (-(-end // 8))).from_address(self.start)


def _call_of(compiled: Any, config: _Config, parameters: _Parameters) -> tuple[Any, ...]:
    """What the driver is given to launch a kernel."""
    function = ctypes.c_void_p(compiled.function)
    return ctypes.byref(config), function, parameters.pointers, None


class Kernel:
    """A compiled kernel, to be launched with arguments of the kinds that it was compiled for.

    Args:
        arguments: some of them, without the constants.

    Raises:
        Unknown: where Triton has to launch it.
    """

    def __init__(self, compiled: Any, arguments: Sequence[Any]) -> None:
        values = parameters_of(compiled, arguments)
        kinds = list(compiled.src.signature.values())[: len(arguments)]
        self._wanted = [
            place for place, kind in enumerate(kinds_of(kinds, arguments)) if kind != "constexpr"
        ]
        self._meta = list(compiled.metadata.tensordesc_meta or ())
        offsets, end = places_of([size_of(value) for value in values])
        self._own = _Parameters(offsets, end)
        self._config = _config_of(compiled)
        self._call = _call_of(compiled, self._config, self._own)
        self._places = [
            offset for offset, value in zip(offsets, values, strict=True)
            if isinstance(value, tuple)
        ]  # fmt: skip
        codes = [kind for kind, _ in flat(kinds, arguments)]
        self._format = format_of(values, offsets, codes)
        self._encoded = _Encoded()
        self._lock = Lock()

    def __call__(self, grid: Sequence[int], stream: int, values: Sequence[Any]) -> None:
        """Launches it.

        Args:
            grid: one to three numbers of programs.
            values: of the arguments: see `Leaves`.
        """
        numbers = [values[place] for place in self._wanted]
        tensors: list[TensorDescriptor] = []
        if self._places:
            numbers, tensors = with_descriptors(numbers)
        with self._lock:
            struct.pack_into(self._format, self._own.memory, self._own.skipped, *numbers)
            first = self._own.start
            for place, own, meta in zip(self._places, tensors, self._meta, strict=True):
                address = own.base.data_ptr()
                key = (place, address, own.base.dtype, *own.shape, *own.strides)
                if not self._encoded.copied(key, first + place):
                    _encode(first + place, described(own, meta), address)
                    self._encoded.keep(key, first + place)
            self._config.set_grid(grid)
            self._config.stream = stream
            _start(self._call)


class Launch:
    """A kernel with its grid and parameters.

    Addresses come again, as memory does that is given back: what was written for some that were
    there twice is kept, and not written again.

    Args:
        place_of: where a tensor's address comes from in a call; None when it is always the same.
    """

    def __init__(
        self,
        compiled: Any,
        grid: tuple[int, ...],
        arguments: Sequence[Any],
        place_of: Callable[[Tensor], Place | None],
    ) -> None:
        values = parameters_of(compiled, arguments)
        self._offsets, self._end = places_of([size_of(value) for value in values])
        self._parameters = own = _Parameters(self._offsets, self._end)
        self._addresses: list[tuple[int, int, int]] = []
        self._descriptors: list[tuple[int, Descriptor, int, int]] = []
        # What is always at the same address must stay there.
        self._constant: list[Tensor] = []
        for value, offset in zip(values, self._offsets, strict=True):
            if isinstance(value, bytes):
                ctypes.memmove(own.start + offset, value, len(value))
                continue
            tensor = value if isinstance(value, Tensor) else value[1]
            place = place_of(tensor)
            if place is None:
                self._constant.append(tensor)
            if isinstance(value, Tensor):
                if place is None:
                    own.words[offset // 8] = tensor.data_ptr()
                else:
                    self._addresses.append((offset // 8, *place))
            elif place is None:
                _encode(own.start + offset, value[0], tensor.data_ptr())
            else:
                self._descriptors.append((offset, value[0], *place))
        self._kernel = compiled
        self._config = _config_of(compiled)
        self._config.set_grid(grid)
        self._encoded = _Encoded()
        self._call = _call_of(compiled, self._config, own)
        self._seen: set[tuple[int, ...]] = set()
        self._ready: dict[tuple[int, ...], tuple[Any, ...]] = {}
        self._lock = Lock()

    def __call__(self, stream: int, addresses: tuple[int, ...]) -> None:
        """Launches with the addresses of a call's tensors."""
        with self._lock:
            call = self._ready.get(addresses)
            if call is None:
                call = self._written(addresses)
            self._config.stream = stream
            _start(call)

    def _written(self, addresses: tuple[int, ...]) -> tuple[Any, ...]:
        own = self._parameters
        for word, number, offset in self._addresses:
            own.words[word] = addresses[number] + offset
        for place, shape, number, offset in self._descriptors:
            at, address = own.start + place, addresses[number] + offset
            if not self._encoded.copied((place, address), at):
                _encode(at, shape, address)
                self._encoded.keep((place, address), at)
        if addresses not in self._seen:
            if len(self._seen) >= MOST_READY:
                self._seen.clear()
                self._ready.clear()
            self._seen.add(addresses)
            return self._call
        kept = _Parameters(self._offsets, self._end)
        ctypes.memmove(kept.start, own.start, self._end)
        self._ready[addresses] = call = _call_of(self._kernel, self._config, kept)
        return call


@cache
def _driver() -> Any:
    # Holds Python's lock while it runs, which is shorter than giving it away and waiting for it.
    return ctypes.PyDLL("libcuda.so.1")


@cache
def _primary_context(device: int) -> ctypes.c_void_p:
    context = ctypes.c_void_p()
    _driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    return context


def load(compiled: Any) -> None:
    """Brings a kernel to the current device, without the launcher that Triton would make for it."""
    if compiled.function is None:
        utils, device = driver.active.utils, driver.active.get_current_device()
        shared = compiled.metadata.shared
        compiled.function = utils.load_binary(compiled.name, compiled.kernel, shared, device)[1]


def current_stream() -> int:
    """Of the current device."""
    found: int = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
    return found


def _encode(at: int, described: Descriptor, address: int) -> None:
    """Writes a descriptor to a place in memory."""
    result = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(at),
        described.element,
        len(described.dims),
        ctypes.c_void_p(address),
        described.dims,
        described.strides,
        described.box,
        described.steps,
        0,
        described.swizzle,
        L2_PROMOTION_128,
        0,
    )
    if result:
        raise RuntimeError(f"CUDA's driver did not describe a tensor: error {result}")
