"""Launches by CUDA's driver itself, of kernels whose arguments are the same but for addresses.

Triton looks at every argument of every launch in Python, and encodes every tensor's descriptor
anew. Here parameters lie in memory as the kernel reads them, which its PTX tells, and a launch
writes the addresses that are others than last time.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

__all__ = ["Launch", "Place", "Unknown", "parameters_of"]

DESCRIPTOR = 128
ALIGNED = 64
SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8, "fp32": 4, "fp64": 8}
PTX_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
# What a descriptor's elements are called in the driver, by what they are on the device.
ELEMENTS = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
L2_PROMOTION_128 = 2
INVALID_CONTEXT = 201

PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)[^,\[\n]*?\w+(?:\[(\d+)\])?\s*[,\n]"
)


class Unknown(Exception):
    """A kernel that has to be launched by Triton, for the reason that the message gives."""


class Place(NamedTuple):
    """An address: that of one of a call's tensors, by number, and bytes from there."""

    number: int
    offset: int


class Descriptor(NamedTuple):
    """All of a tensor's descriptor but the address."""

    element: int
    dims: Any
    strides: Any
    box: Any
    steps: Any
    swizzle: int


Value = bytes | Tensor | tuple[Descriptor, Tensor]


def parameters_of(compiled: Any, arguments: Sequence[Any]) -> list[Value]:
    """A kernel's parameters in order: bytes, tensors that stand for their addresses, descriptors.

    Raises:
        Unknown: where the PTX has others.
    """
    metadata = compiled.metadata
    if metadata.launch_cooperative_grid or metadata.num_ctas != 1:
        raise Unknown("it is launched in a way of its own")
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise Unknown("it has memory of its own")
    # The constants come last.
    kinds = list(compiled.src.signature.values())[: len(arguments)]
    meta = iter(metadata.tensordesc_meta or ())
    found: list[Value] = []
    for kind, value in _flat(kinds, arguments):
        if isinstance(value, TensorDescriptor):
            found += _of_descriptor(value, next(meta, None))
        elif isinstance(value, Tensor):
            found.append(value)
        else:
            found.append(_packed(kind, value))
    # Two addresses of memory that it does not have.
    found += [bytes(8), bytes(8)]
    sizes = [_size(value) for value in found]
    if sizes != _sizes_in(compiled.asm["ptx"]):
        raise Unknown("its PTX has other parameters")
    return found


def _flat(kinds: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """Arguments in order with what Triton takes them for, without those that it compiled in."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, (tuple, list)):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _of_descriptor(given: TensorDescriptor, meta: dict[str, Any] | None) -> list[Value]:
    if meta is None or given.padding != "zero" or given.base.dtype not in ELEMENTS:
        raise Unknown("it has a descriptor of another kind")
    rank, size = len(given.shape), given.base.element_size()
    strides = [int(s) * size for s in given.strides[:-1]]
    described = Descriptor(
        ELEMENTS[given.base.dtype],
        (ctypes.c_uint64 * rank)(*reversed([int(n) for n in given.shape])),
        (ctypes.c_uint64 * (rank - 1))(*reversed(strides)),
        (ctypes.c_uint32 * rank)(*reversed(meta["block_size"])),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        meta["swizzle"],
    )
    shape = [struct.pack("<i", n) for n in given.shape]
    return [(described, given.base), *shape, *(struct.pack("<q", s) for s in given.strides)]


def _packed(kind: str, value: Any) -> bytes:
    if kind in ("fp32", "fp64"):
        return struct.pack("<f" if kind == "fp32" else "<d", value)
    if kind not in SIZES:
        raise Unknown(f"it has a parameter of kind {kind}")
    return int(value).to_bytes(SIZES[kind], "little", signed=kind[0] == "i" and kind != "i1")


def _size(value: Value) -> int:
    if isinstance(value, bytes):
        return len(value)
    return 8 if isinstance(value, Tensor) else DESCRIPTOR


def _sizes_in(ptx: str) -> list[int]:
    start = ptx.index("(", ptx.index(".entry"))
    listed = ptx[start : ptx.index(")", start)] + "\n"
    return [PTX_SIZES.get(bits, 0) * int(count or 1) for bits, count in PARAMETER.findall(listed)]


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


class Launch:
    """A kernel with its grid and parameters.

    Args:
        place_of: where a tensor's address comes from in a call; None when it is always the same.
    """

    def __init__(
        self,
        compiled: Any,
        grid: tuple[int, int],
        arguments: Sequence[Any],
        place_of: Callable[[Tensor], Place | None],
    ) -> None:
        values = parameters_of(compiled, arguments)
        offsets, end = [], 0
        for value in values:
            aligned = ALIGNED if _size(value) == DESCRIPTOR else 8
            end = -(-end // aligned) * aligned
            offsets.append(end)
            end += _size(value)
        self._memory = ctypes.create_string_buffer(end + ALIGNED)
        start = -(-ctypes.addressof(self._memory) // ALIGNED) * ALIGNED
        self._words = (ctypes.c_uint64 * (-(-end // 8))).from_address(start)
        self._addresses: list[tuple[int, int, int]] = []
        self._descriptors: list[tuple[int, Descriptor, int, int]] = []
        # What is always at the same address must stay there.
        self._constant: list[Tensor] = []
        for value, offset in zip(values, offsets, strict=True):
            if isinstance(value, bytes):
                ctypes.memmove(start + offset, value, len(value))
                continue
            tensor = value if isinstance(value, Tensor) else value[1]
            place = place_of(tensor)
            if place is None:
                self._constant.append(tensor)
            if isinstance(value, Tensor):
                if place is None:
                    self._words[offset // 8] = tensor.data_ptr()
                else:
                    self._addresses.append((offset // 8, *place))
            elif place is None:
                _encode(start + offset, value[0], tensor.data_ptr())
            else:
                self._descriptors.append((start + offset, value[0], *place))
        count = len(values)
        self._parameters = (ctypes.c_void_p * count)(*[start + offset for offset in offsets])
        self._kernel = compiled
        threads = 32 * compiled.metadata.num_warps
        shape = (*grid, 1, threads, 1, 1, compiled.metadata.shared)
        self._config = _Config(*shape, 0, None, 0)
        if compiled.metadata.launch_pdl:
            self._config.attributes = ctypes.addressof(OVERLAPPING)
            self._config.attribute_count = 1
        self._call = (
            ctypes.byref(self._config), ctypes.c_void_p(compiled.function), self._parameters, None
        )  # fmt: skip
        self._known: dict[tuple[int, int], Any] = {}
        self._last: list[int] = []
        self._lock = Lock()

    def __call__(self, stream: int, addresses: list[int]) -> None:
        """Launches with the addresses of a call's tensors."""
        with self._lock:
            if addresses != self._last:
                for word, number, offset in self._addresses:
                    self._words[word] = addresses[number] + offset
                for at, described, number, offset in self._descriptors:
                    self._describe(at, described, addresses[number] + offset)
                self._last = addresses
            self._config.stream = stream
            result = _driver().cuLaunchKernelEx(*self._call)
            if result == INVALID_CONTEXT:
                # A thread in which nothing has used CUDA before.
                _driver().cuCtxSetCurrent(_primary_context(torch.cuda.current_device()))
                result = _driver().cuLaunchKernelEx(*self._call)
        if result:
            raise RuntimeError(f"CUDA's driver did not launch a kernel: error {result}")

    def _describe(self, at: int, described: Descriptor, address: int) -> None:
        """Writes a descriptor; the same addresses come again and again."""
        known = self._known.get((at, address))
        if known is None:
            _encode(at, described, address)
            if len(self._known) >= 256:
                self._known.clear()
            self._known[at, address] = ctypes.string_at(at, DESCRIPTOR)
        else:
            ctypes.memmove(at, known, DESCRIPTOR)


@cache
def _driver() -> Any:
    # Holds Python's lock while it runs, which is shorter than giving it away and waiting for it.
    return ctypes.PyDLL("libcuda.so.1")


@cache
def _primary_context(device: int) -> ctypes.c_void_p:
    context = ctypes.c_void_p()
    _driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    return context


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
