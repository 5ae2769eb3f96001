"""Launches by CUDA's driver itself, of kernels whose arguments are the same but for addresses.

Triton looks at every argument of every launch in Python, and encodes every tensor's descriptor
anew; and before a kernel's first launch some versions run a C compiler, for longer than the kernel
took to compile. Here parameters lie in memory as the kernel reads them, which its PTX tells. A
`Kernel` is launched with any arguments; a `Launch` is one that comes again with other addresses,
and writes only these.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime import driver

__all__ = [
    "Kernel",
    "Launch",
    "Leaves",
    "Place",
    "Unknown",
    "current_stream",
    "load",
    "parameters_of",
]

DESCRIPTOR = 128
ALIGNED = 64
SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8, "fp32": 4, "fp64": 8}
CODES = {
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "fp32": "f",
    "fp64": "d",
}  # fmt: skip
PTX_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
# What a descriptor's elements are called in the driver, by what they are on the device.
ELEMENTS = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
L2_PROMOTION_128 = 2
INVALID_CONTEXT = 201
MOST_ENCODED = 256
MOST_READY = 64

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


class Leaves:
    """Arguments one after the other, those in tuples too.

    Attributes:
        values: numbers, addresses of tensors, and descriptors.
        kinds: all that Triton may compile a kernel for, but for how addresses are aligned: whole
            numbers (it knows 1, and those that 16 divides), dtypes, and that others are real.
        addresses: of the tensors.
    """

    __slots__ = ("addresses", "kinds", "values")

    def __init__(self, arguments: Iterable[Any]) -> None:
        self.values: list[Any] = []
        self.kinds: list[Any] = []
        self.addresses: list[int] = []
        self._add(arguments)

    def and_number(self, number: int) -> Leaves:
        """These, and a whole number after them."""
        found = Leaves(())
        found.values, found.kinds = [*self.values, number], [*self.kinds, number]
        found.addresses = self.addresses
        return found

    def _add(self, arguments: Iterable[Any]) -> None:
        # Of every launch, and of a hundred leaves each.
        values, kinds = self.values, self.kinds
        for value in arguments:
            kind = type(value)
            if kind is int:
                values.append(value)
                kinds.append(value)
            elif isinstance(value, Tensor):
                address = value.data_ptr()
                values.append(address)
                self.addresses.append(address)
                kinds.append(value.dtype)
            elif isinstance(value, tuple):
                self._add(value)
            else:
                values.append(value)
                kinds.append(kind if kind is float else (kind, value))


def _kinds_of(kinds: Any, values: Any) -> Iterator[str]:
    """What Triton takes each of the `Leaves` of arguments for."""
    for kind, value in zip(kinds, values, strict=True):
        if not isinstance(value, tuple):
            yield kind
        elif kind == "constexpr":
            yield from [kind] * len(Leaves(value).values)
        else:
            yield from _kinds_of(kind, value)


def _flat(kinds: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """Arguments in order with what Triton takes them for, without those that it compiled in."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, (tuple, list)):
            yield from _flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _of_descriptor(given: TensorDescriptor, meta: dict[str, Any] | None) -> list[Value]:
    shape = [struct.pack("<i", n) for n in given.shape]
    strides = [struct.pack("<q", s) for s in given.strides]
    return [(_described(given, meta), given.base), *shape, *strides]


def _described(given: TensorDescriptor, meta: dict[str, Any] | None) -> Descriptor:
    if meta is None or given.padding != "zero" or given.base.dtype not in ELEMENTS:
        raise Unknown("it has a descriptor of another kind")
    rank, size = len(given.shape), given.base.element_size()
    strides = [int(s) * size for s in given.strides[:-1]]
    return Descriptor(
        ELEMENTS[given.base.dtype],
        (ctypes.c_uint64 * rank)(*reversed([int(n) for n in given.shape])),
        (ctypes.c_uint64 * (rank - 1))(*reversed(strides)),
        (ctypes.c_uint32 * rank)(*reversed(meta["block_size"])),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        meta["swizzle"],
    )


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


def _places_of(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where parameters of these sizes lie, and where they end."""
    offsets, end = [], 0
    for size in sizes:
        aligned = ALIGNED if size == DESCRIPTOR else 8
        end = -(-end // aligned) * aligned
        offsets.append(end)
        end += size
    return offsets, end


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
        pointers: to each parameter.
        words: eight bytes each.
    """

    def __init__(self, offsets: Sequence[int], end: int) -> None:
        self.memory = ctypes.create_string_buffer(end + ALIGNED)
        self.skipped = -ctypes.addressof(self.memory) % ALIGNED
        self.start = ctypes.addressof(self.memory) + self.skipped
        self.pointers = (ctypes.c_void_p * len(offsets))(*[self.start + at for at in offsets])
        self.words = (ctypes.c_uint64 * (-(-end // 8))).from_address(self.start)


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
            place for place, kind in enumerate(_kinds_of(kinds, arguments)) if kind != "constexpr"
        ]
        self._meta = list(compiled.metadata.tensordesc_meta or ())
        offsets, end = _places_of([_size(value) for value in values])
        self._own = own = _Parameters(offsets, end)
        self._config = _config_of(compiled)
        self._call = (
            ctypes.byref(self._config), ctypes.c_void_p(compiled.function), own.pointers, None
        )  # fmt: skip
        self._places = [
            offset for offset, value in zip(offsets, values, strict=True)
            if isinstance(value, tuple)
        ]  # fmt: skip
        codes = [kind for kind, _ in _flat(kinds, arguments)]
        self._format = _format_of(values, offsets, codes)
        self._encoded = _Encoded()
        self._lock = Lock()

    def __call__(self, grid: Sequence[int], stream: int, values: Sequence[Any]) -> None:
        """Launches it.

        Args:
            grid: one to three numbers of programs.
            values: of the arguments: see `Leaves`.
        """
        numbers = [values[place] for place in self._wanted]
        described: list[TensorDescriptor] = []
        if self._places:
            numbers, described = _with_descriptors(numbers)
        with self._lock:
            struct.pack_into(self._format, self._own.memory, self._own.skipped, *numbers)
            first = self._own.start
            for place, own, meta in zip(self._places, described, self._meta, strict=True):
                address = own.base.data_ptr()
                key = (place, address, own.base.dtype, *own.shape, *own.strides)
                if not self._encoded.copied(key, first + place):
                    _encode(first + place, _described(own, meta), address)
                    self._encoded.keep(key, first + place)
            self._config.set_grid(grid)
            self._config.stream = stream
            _start(self._call)


def _with_descriptors(values: Sequence[Any]) -> tuple[list[Any], list[TensorDescriptor]]:
    """Numbers, with shapes and strides where there are descriptors; and the descriptors."""
    numbers: list[Any] = []
    described = []
    for value in values:
        if isinstance(value, TensorDescriptor):
            described.append(value)
            numbers += value.shape
            numbers += value.strides
        else:
            numbers.append(value)
    return numbers, described


def _format_of(values: Sequence[Value], offsets: Sequence[int], kinds: Sequence[str]) -> str:
    """How `struct` writes all parameters but descriptors, whose places it leaves empty, each behind
    what its tensor is like: shape and strides.
    """
    found, end, leaves = "<", 0, iter(kinds)
    left = 0
    for value, offset in zip(values, offsets, strict=True):
        found += "x" * (offset - end)
        end = offset + _size(value)
        if isinstance(value, tuple):
            next(leaves)
            found += f"{DESCRIPTOR}x"
            left = 2 * len(value[0].dims)
        elif left:
            found += "i" if len(value) == 4 else "q"
            left -= 1
        elif isinstance(value, Tensor):
            next(leaves)
            found += "Q"
        else:
            kind = next(leaves, None)
            # At the end are two addresses of memory that it does not have.
            found += f"{len(value)}x" if kind is None else CODES[kind]
    return found


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
        self._offsets, self._end = _places_of([_size(value) for value in values])
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
        self._call = self._call_with(own)
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
        for place, described, number, offset in self._descriptors:
            at, address = own.start + place, addresses[number] + offset
            if not self._encoded.copied((place, address), at):
                _encode(at, described, address)
                self._encoded.keep((place, address), at)
        if addresses not in self._seen:
            if len(self._seen) >= MOST_READY:
                self._seen.clear()
                self._ready.clear()
            self._seen.add(addresses)
            return self._call
        kept = _Parameters(self._offsets, self._end)
        ctypes.memmove(kept.start, own.start, self._end)
        self._ready[addresses] = call = self._call_with(kept)
        return call

    def _call_with(self, parameters: _Parameters) -> tuple[Any, ...]:
        # What the pointers point to lives as long as they do.
        pointers: Any = parameters.pointers
        pointers.parameters = parameters
        function = ctypes.c_void_p(self._kernel.function)
        return ctypes.byref(self._config), function, pointers, None


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
