"""Computes again, with care, where a kernel met a NaN: 0 times NaN is NaN, so one that a row does
not see may have spoilt it. The kernels leave a number for every tile that says where.
"""

from __future__ import annotations

from typing import Any

from .arguments import Made
from .call import fitted
from .keys import repair_key_gradients
from .launching import launch
from .outputs import repair_outputs
from .parameters import Leaves
from .queries import repair_query_gradients

__all__ = ["repair"]

# Tiles that a program looks after.
SPAN = 64
# Rows or keys that are computed at once.
FINE = 16

KERNELS = {
    "outputs": repair_outputs,
    "queries": repair_query_gradients,
    "keys": repair_key_gradients,
}


def repair(
    name: str,
    grid: tuple[int, int],
    arguments: tuple[Any, ...],
    made: Made,
    leaves: Leaves,
) -> None:
    """Launches what repairs a kernel; grid, arguments with their leaves and constants as for that
    one.
    """
    if name == "keys":
        pieces, careful = made.BN // FINE, made._replace(BN=FINE, CAREFUL=True)
    else:
        pieces, careful = made.BM // FINE, made._replace(BM=FINE, BN=FINE, CAREFUL=True)
        # Inner tiles like the others: less to compile, and most often nothing runs.
        plain = (False,) * len(made.KINDS)
        careful = careful._replace(KINDS=fitted(made.KINDS, FINE), PLAIN=plain)
    programs = -(-grid[0] * grid[1] // SPAN)
    constants = {"MADE": careful, "PIECES": pieces, "SPAN": SPAN}
    units = grid[1]
    launch(
        KERNELS[name],
        (programs,),
        (*arguments, units),
        constants,
        leaves.and_number(units),
        enable_fp_fusion=False,
    )
