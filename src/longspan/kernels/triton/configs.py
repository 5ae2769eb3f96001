"""How the kernels are compiled and launched: warps, stages of loads, registers.

Measured on an H200 (window of 128, B=4 H=16 N=4096 D=64, bfloat16), in microseconds for outputs,
dq, and dk with dv: 4 warps and 3 stages 108, 115, 196; at most 128 registers and 2 stages 96, 105,
364; 8 warps 180, 285, 417.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .arguments import Made

__all__ = ["HopperOptions", "hopper_options", "options", "overridden", "override"]

# Bytes of a pair of rows, for tiles of 64: above this the loads of three stages do not fit a
# multiprocessor's shared memory.
MOST_FOR_THREE_STAGES = 512


class HopperOptions(NamedTuple):
    """How a kernel for Hopper is launched: programs to a multiprocessor, steps whose tiles may be
    there at once, tiles of the work itself that may be, and rows or keys of a step.
    """

    programs: int
    ring: int
    turns: int = 2
    step: int = 64

    @property
    def registers(self) -> int:
        """For each of a program's 256 threads; the loader gives most of its own away."""
        return min(65536 // (256 * self.programs) // 8 * 8, 248)


# By kernel and channels of a head, filled up to a power of two. The largest heads have room for two
# programs only if their tiles come and go through the same place.
HOPPER = {
    ("outputs", 32): HopperOptions(4, 3),
    ("outputs", 64): HopperOptions(3, 3),
    ("outputs", 128): HopperOptions(2, 2),
    ("queries", 32): HopperOptions(2, 3),
    ("queries", 64): HopperOptions(2, 3),
    ("queries", 128): HopperOptions(2, 2, turns=1),
    ("keys", 32): HopperOptions(2, 3),
    ("keys", 64): HopperOptions(2, 3),
    ("keys", 128): HopperOptions(2, 4, turns=1, step=32),
}


# For all threads: gradients are launched from a thread of PyTorch's own.
_OVERRIDES: dict[str, dict[str, int]] = {}


@contextmanager
def override(kernel: str, options: dict[str, int]) -> Iterator[None]:
    """Launches a kernel with these options instead, whatever the problem; for tuning."""
    before = _OVERRIDES.get(kernel)
    _OVERRIDES[kernel] = options
    try:
        yield
    finally:
        if before is None:
            del _OVERRIDES[kernel]
        else:
            _OVERRIDES[kernel] = before


def overridden() -> bool:
    """Whether something is being tuned."""
    return bool(_OVERRIDES)


def options(kernel: str, made: Made, itemsize: int) -> dict[str, int]:
    """Launch options of a kernel, `"outputs"`, `"queries"`, `"keys"` or, of biases' gradients,
    `"pairs"` and `"sums"`.
    """
    if kernel in _OVERRIDES:
        return dict(_OVERRIDES[kernel])
    channels = made.PD + made.PDV
    lean = not made.TERMS and not made.DROPOUT and channels <= 128 and itemsize == 2
    if kernel != "keys" and lean:
        # Several parts do not fit into 128 registers.
        return {"num_warps": 4, "num_stages": 2, "maxnreg": 128 if len(made.KINDS) == 1 else 168}
    width = channels * itemsize * max(made.BM, made.BN) // 64
    stages = 3 if width <= MOST_FOR_THREE_STAGES else 2
    if kernel == "pairs" and 2 * width > MOST_FOR_THREE_STAGES:
        # Rows are loaded in every turn too, not keys alone.
        stages -= 1
    return {"num_warps": 4, "num_stages": stages}


def hopper_options(kernel: str, channels: int) -> HopperOptions:
    """Launch options of a kernel for Hopper, `"outputs"`, `"queries"` or `"keys"`."""
    chosen = HOPPER[kernel, max(channels, 32)]
    return chosen._replace(**_OVERRIDES.get("hopper " + kernel, {}))
