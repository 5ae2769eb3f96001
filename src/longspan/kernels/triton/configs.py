"""How the kernels are compiled: warps, stages of loads, registers.

Measured on an H200 (window of 128, B=4 H=16 N=4096 D=64, bfloat16), in microseconds for outputs,
dq, and dk with dv: 4 warps and 3 stages 108, 115, 196; at most 128 registers and 2 stages 96, 105,
364; 8 warps 180, 285, 417.
"""

from __future__ import annotations

from typing import Any

__all__ = ["options"]

# Bytes of a pair of rows, for tiles of 64: above this the loads of three stages do not fit a
# multiprocessor's shared memory.
MOST_FOR_THREE_STAGES = 512


def options(kernel: str, constants: dict[str, Any], itemsize: int) -> dict[str, int]:
    """Launch options of a kernel, `"outputs"`, `"queries"`, `"keys"` or, of biases' gradients,
    `"pairs"` and `"sums"`.
    """
    channels = constants["PD"] + constants["PDV"]
    lean = not constants["TERMS"] and not constants["DROPOUT"] and channels <= 128 and itemsize == 2
    if kernel != "keys" and lean:
        return {"num_warps": 4, "num_stages": 2, "maxnreg": 128}
    width = channels * itemsize * constants["BM"] // 64
    stages = 3 if width <= MOST_FOR_THREE_STAGES else 2
    if kernel == "pairs" and 2 * width > MOST_FOR_THREE_STAGES:
        # Rows are loaded in every turn too, not keys alone.
        stages -= 1
    return {"num_warps": 4, "num_stages": stages}
