"""How the kernels are compiled: warps, stages of loads, registers.

Measured on an H200 (window of 128, B=4 H=16 N=4096 D=64, bfloat16), in microseconds for outputs,
dq, and dk with dv: 4 warps and 3 stages 108, 115, 196; at most 128 registers and 2 stages 96, 105,
364; 8 warps 180, 285, 417.
"""

from __future__ import annotations

from .pairs import Made

__all__ = ["options"]

# Above this the loads of three stages do not fit a multiprocessor's shared memory.
MOST_FOR_THREE_STAGES = 256


def options(kernel: str, made: Made, itemsize: int) -> dict[str, int]:
    """Launch options of a kernel, `"outputs"`, `"queries"` or `"keys"`."""
    channels = made.PD + made.PDV
    lean = not made.TERMS and not made.DROPOUT and channels <= 128 and itemsize == 2
    if kernel != "keys" and lean:
        return {"num_warps": 4, "num_stages": 2, "maxnreg": 128}
    return {"num_warps": 4, "num_stages": 3 if channels <= MOST_FOR_THREE_STAGES else 2}
