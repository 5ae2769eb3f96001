"""Calls that are played from notes: by a driver that says what it was given."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.kernels import triton as triton_backend

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.skipif(not triton_backend.available(), reason="needs triton"),
]

PTX = """
.visible .entry kernel(
    .param .align 64 .b8 kernel_param_0[128],
    .param .u32 kernel_param_1,
    .param .u32 kernel_param_2,
    .param .u64 kernel_param_3,
    .param .u64 kernel_param_4,
    .param .u64 .ptr .global .align 1 kernel_param_5,
    .param .u32 kernel_param_6,
    .param .u64 .ptr .global .align 1 kernel_param_7,
    .param .f32 kernel_param_8,
    .param .u64 .ptr .global .align 1 kernel_param_9,
    .param .u64 .ptr .global .align 1 kernel_param_10
)
.reqntid 128
"""

SIGNATURE = {
    "x": "tensordesc<bf16[16, 16]>",
    "pair": ("*fp32", "constexpr", "i32"),
    "out": "*fp32",
    "scale": "fp32",
    "each": "constexpr",
}


def compiled(**changes: Any) -> Any:
    about = dict(
        launch_pdl=False,
        launch_cooperative_grid=False,
        num_ctas=1,
        global_scratch_size=0,
        profile_scratch_size=0,
        tensordesc_meta=[{"block_size": [16, 16], "swizzle": 1}],
        num_warps=4,
        shared=96,
    )
    return SimpleNamespace(
        metadata=SimpleNamespace(**about | changes),
        src=SimpleNamespace(signature=SIGNATURE),
        asm={"ptx": PTX},
        function=7,
    )


class Driver:
    """Reads what a launch would: sizes of the parameters above, in their order."""

    SIZES = (128, 4, 4, 8, 8, 8, 4, 8, 4, 8, 8)

    def __init__(self) -> None:
        self.launched: list[list[bytes]] = []
        self.configs: list[tuple[int, ...]] = []
        self.attributes: list[list[tuple[int, int]]] = []
        self.encoded = 0

    def cuTensorMapEncodeTiled(self, at: Any, *rest: Any) -> int:
        element, rank, address = rest[:3]
        self.encoded += 1
        words = struct.pack("<QQQ", address.value, element, rank)
        ctypes.memmove(at.value, words + bytes(128 - len(words)), 128)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: None) -> int:
        own = config._obj
        self.configs.append((own.grid_x, own.grid_y, own.block_x, own.shared, own.stream or 0))
        words = [
            struct.unpack("<iii", ctypes.string_at(own.attributes + 72 * number, 12))
            for number in range(own.attribute_count)
        ]
        self.attributes.append([(kind, value) for kind, _, value in words])
        assert function.value == 7 and extra is None
        self.launched.append(
            [ctypes.string_at(at, size) for at, size in zip(parameters, self.SIZES, strict=True)]
        )
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    from longspan.kernels.triton import driver as module

    own = Driver()
    monkeypatch.setattr(module, "_driver", lambda: own)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 5, raising=False)
    return own


def descriptor(x: Tensor) -> Any:
    from longspan.kernels.triton.hopper.descriptors import _descriptor

    return _descriptor(x, x.shape, x.stride(), [16, 16], None)


def recording(x: Tensor, out: Tensor, side: Tensor, scale: float = 0.5) -> Any:
    from longspan.kernels.triton.launching import Recording, Started

    arguments = (descriptor(x), (side[1], 1, 9), out, scale, 1)
    return Recording([Started(compiled(), (3, 2), arguments)], [out, side])


def address(parameter: bytes) -> int:
    return struct.unpack("<Q", parameter[:8])[0]


def test_addresses_are_those_of_the_call(driver: Driver) -> None:
    from longspan.kernels.triton.hopper.replay import Tape

    x, out, side = torch.zeros(32, 16, dtype=torch.bfloat16), torch.zeros(6), torch.zeros(2, 40)
    tape = Tape(recording(x, out, side), [x], [out])
    for _ in range(2):
        new = torch.zeros_like(x)
        (made,) = tape.play([new])
        assert made.shape == out.shape and made.dtype == out.dtype and made is not out
        own = driver.launched[-1]
        assert address(own[0]) == new.data_ptr()
        # Its own shape and strides, as the kernel reads them.
        assert [int.from_bytes(n, "little") for n in own[1:5]] == [32, 16, 16, 1]
        assert address(own[7]) == made.data_ptr() and own[6] == struct.pack("<i", 9)
        assert own[8] == struct.pack("<f", 0.5) and own[9] == own[10] == bytes(8)
        # The second row of memory that is the call's alone.
        assert address(own[5]) % 16 == 0 and address(own[5]) not in (0, side[1].data_ptr())
    assert driver.configs[-1] == (3, 2, 128, 96, 5)


def test_a_kernel_is_launched_with_any_arguments(driver: Driver) -> None:
    """As Triton would, other shapes and numbers too."""
    from longspan.kernels.triton.driver import Kernel
    from longspan.kernels.triton.parameters import Leaves

    def arguments(rows: int, number: int, scale: float) -> tuple[Any, ...]:
        x = torch.zeros(rows, 16, dtype=torch.bfloat16)
        return descriptor(x), (torch.zeros(3), 1, number), torch.zeros(6), scale, 1

    kernel = Kernel(compiled(), arguments(32, 9, 0.5))
    for grid, given in (((3, 2), arguments(64, 7, 0.25)), ((5, 1), arguments(32, -1, 2.0))):
        kernel(grid, 5, Leaves(given).values)
        own, (x, (side, _, number), out, scale, _) = driver.launched[-1], given
        assert address(own[0]) == x.base.data_ptr()
        assert [int.from_bytes(n, "little") for n in own[1:5]] == [len(x.base), 16, 16, 1]
        assert address(own[5]) == side.data_ptr() and address(own[7]) == out.data_ptr()
        assert own[6] == struct.pack("<i", number) and own[8] == struct.pack("<f", scale)
        assert own[9] == own[10] == bytes(8)
        assert driver.configs[-1] == (*grid, 128, 96, 5)
    assert driver.encoded == 2
    kernel((5, 1), 5, Leaves(given).values)
    assert driver.encoded == 2 and driver.launched[-1] == driver.launched[-2]


def test_launches_are_told_apart_by_all_that_triton_compiles_for() -> None:
    from longspan.kernels.triton.launching import _misaligned
    from longspan.kernels.triton.parameters import Leaves

    x = torch.zeros(64, dtype=torch.bfloat16)
    x = x[(-x.data_ptr() // 2) % 8 :]

    def kinds(*arguments: Any) -> tuple[Any, ...]:
        leaves = Leaves(arguments)
        return (*leaves.kinds, _misaligned(leaves.addresses))

    assert kinds((x, 1), 2.5) == kinds((x[8:], 1), 1.5)
    different = [
        kinds((x, 1), 2.5), kinds((x, 2), 2.5), kinds((x, 1), 1), kinds((x, 1.0), 2.5),
        kinds((x, True), 2.5), kinds((x[1:], 1), 2.5), kinds((x.float(), 1), 2.5),
    ]  # fmt: skip
    assert len({repr(own) for own in different}) == len(different)


def test_descriptors_are_encoded_once_for_an_address(driver: Driver) -> None:
    from longspan.kernels.triton.hopper.replay import Tape

    x, out, side = torch.zeros(32, 16, dtype=torch.bfloat16), torch.zeros(6), torch.zeros(2, 40)
    tape = Tape(recording(x, out, side), [x], [out])
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    for given in (first, second, first, second, first):
        tape.play([given])
        assert address(driver.launched[-1][0]) == given.data_ptr()
    assert driver.encoded == 2


def test_more_addresses_than_are_kept(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    from longspan.kernels.triton import driver as module
    from longspan.kernels.triton.hopper.replay import Tape

    monkeypatch.setattr(module, "MOST_READY", 2)
    x, out, side = torch.zeros(32, 16, dtype=torch.bfloat16), torch.zeros(6), torch.zeros(2, 40)
    tape = Tape(recording(x, out, side), [x], [out])
    many = [torch.zeros_like(x) for _ in range(5)]
    for given in (*many, *many[::-1]):
        tape.play([given])
        assert address(driver.launched[-1][0]) == given.data_ptr()
    assert driver.encoded == 5


def test_what_is_not_the_calls_stays_where_it_is(driver: Driver) -> None:
    from longspan.kernels.triton.hopper.replay import Tape

    x, out, kept = torch.zeros(32, 16, dtype=torch.bfloat16), torch.zeros(6), torch.zeros(2, 40)
    noted = recording(x, out, kept)
    noted.made = [out]
    tape = Tape(noted, [x], [out])
    where = kept[1].data_ptr()
    tape.play([torch.zeros_like(x)])
    assert address(driver.launched[-1][5]) == where


def test_gradients_lie_as_before(driver: Driver) -> None:
    from longspan.kernels.triton.hopper.replay import Tape

    x, side = torch.zeros(32, 16, dtype=torch.bfloat16), torch.zeros(2, 40)
    out = torch.empty(4, 3).t()
    (made,) = Tape(recording(x, out, side), [x], [out]).play([x])
    assert made.stride() == out.stride() == (1, 3)


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_kernel_that_waits_by_itself_may_begin_early(driver: Driver, overlaps: bool) -> None:
    from longspan.kernels.triton.driver import Launch

    x = torch.zeros(32, 16, dtype=torch.bfloat16)
    arguments = (descriptor(x), (torch.zeros(3), 1, 9), torch.zeros(6), 0.5, 1)
    launch = Launch(compiled(launch_pdl=overlaps), (3, 2), arguments, lambda x: None)
    launch(5, ())
    # `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, and that it is allowed.
    assert driver.attributes == [[(6, 1)] if overlaps else []]


@pytest.mark.parametrize(
    "changes",
    [
        {"launch_cooperative_grid": True},
        {"num_ctas": 2},
        {"global_scratch_size": 8},
        {"tensordesc_meta": None},
    ],
    ids=str,
)
def test_kernels_of_another_kind_are_left_to_triton(changes: dict[str, Any]) -> None:
    from longspan.kernels.triton.parameters import Unknown, parameters_of

    x = torch.zeros(32, 16, dtype=torch.bfloat16)
    arguments = (descriptor(x), (torch.zeros(3), 1, 9), torch.zeros(6), 0.5, 1)
    assert len(parameters_of(compiled(), arguments)) == 11
    with pytest.raises(Unknown):
        parameters_of(compiled(**changes), arguments)


def test_other_parameters_in_the_ptx_are_not_guessed() -> None:
    from longspan.kernels.triton.parameters import Unknown, parameters_of

    x = torch.zeros(32, 16, dtype=torch.bfloat16)
    arguments = (descriptor(x), (torch.zeros(3), 1, 9), torch.zeros(6), 0.5, 1)
    other = compiled()
    other.asm["ptx"] = PTX.replace(".f32", ".f64")
    with pytest.raises(Unknown, match="PTX"):
        parameters_of(other, arguments)


def test_what_does_more_than_launch_is_not_played() -> None:
    from longspan.kernels.triton import launching
    from longspan.kernels.triton.hopper.replay import Tape
    from longspan.kernels.triton.parameters import Unknown

    with launching.recorded() as noted:
        made = launching.empty((3,), torch.float32, torch.device("cpu"))
        with launching.unrecorded():
            launching.empty((3,), torch.float32, torch.device("cpu"))
        launching.spoil()
    assert len(noted.made) == 1 and noted.made[0] is made
    with pytest.raises(Unknown):
        Tape(noted, [torch.zeros(3)], [made])
