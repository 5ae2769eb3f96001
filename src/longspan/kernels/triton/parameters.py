"""A kernel's parameters: what they are, and how they lie in memory, which its PTX tells."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

__all__ = [
    "ALIGNED",
    "DESCRIPTOR",
    "Descriptor",
    "Leaves",
    "Unknown",
    "described",
    "flat",
    "format_of",
    "kinds_of",
    "parameters_of",
    "places_of",
    "size_of",
    "with_descriptors",
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

PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)[^,\[\n]*?\w+(?:\[(\d+)\])?\s*[,\n]"
)


class Unknown(Exception):
    """A kernel that has to be launched by Triton, for the reason that the message gives."""


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
    for kind, value in flat(kinds, arguments):
        if isinstance(value, TensorDescriptor):
            found += _of_descriptor(value, next(meta, None))
        elif isinstance(value, Tensor):
            found.append(value)
        else:
            found.append(_packed(kind, value))
    # Two addresses of memory that it does not have.
    found += [bytes(8), bytes(8)]
    sizes = [size_of(value) for value in found]
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


def kinds_of(kinds: Any, values: Any) -> Iterator[str]:
    """What Triton takes each of the `Leaves` of arguments for."""
    for kind, value in zip(kinds, values, strict=True):
        if not isinstance(value, tuple):
            yield kind
        elif kind == "constexpr":
            yield from [kind] * len(Leaves(value).values)
        else:
            yield from kinds_of(kind, value)


def flat(kinds: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """Arguments in order with what Triton takes them for, without those that it compiled in."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, (tuple, list)):
            yield from flat(kind, value)
        elif kind != "constexpr":
            yield kind, value


def _of_descriptor(given: TensorDescriptor, meta: dict[str, Any] | None) -> list[Value]:
    shape = [struct.pack("<i", n) for n in given.shape]
    strides = [struct.pack("<q", s) for s in given.strides]
    return [(described(given, meta), given.base), *shape, *strides]


def described(given: TensorDescriptor, meta: dict[str, Any] | None) -> Descriptor:
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


def size_of(value: Value) -> int:
    if isinstance(value, bytes):
        return len(value)
    return 8 if isinstance(value, Tensor) else DESCRIPTOR


def _sizes_in(ptx: str) -> list[int]:
    start = ptx.index("(", ptx.index(".entry"))
    listed = ptx[start : ptx.index(")", start)] + "\n"
    return [PTX_SIZES.get(bits, 0) * int(count or 1) for bits, count in PARAMETER.findall(listed)]


def places_of(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where parameters of these sizes lie, and where they end."""
    offsets, end = [], 0
    for size in sizes:
        aligned = ALIGNED if size == DESCRIPTOR else 8
        end = -(-end // aligned) * aligned
        offsets.append(end)
        end += size
    return offsets, end


def with_descriptors(values: Sequence[Any]) -> tuple[list[Any], list[TensorDescriptor]]:
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


def format_of(values: Sequence[Value], offsets: Sequence[int], kinds: Sequence[str]) -> str:
    """How `struct` writes all parameters but descriptors, whose places it leaves empty, each behind
    what its tensor is like: shape and strides.
    """
    found, end, leaves = "<", 0, iter(kinds)
    left = 0
    for value, offset in zip(values, offsets, strict=True):
        found += "x" * (offset - end)
        end = offset + size_of(value)
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
