"""The problems, by name: each a function of whether only a quick look is wanted."""

from __future__ import annotations

from collections.abc import Callable

from ..problem import Problem
from .layouts import compiling
from .learned import learned
from .lengths import cost_per_pair, lengths
from .memory import memory
from .normalizers import entmax_attention, entmax_functions
from .patterns import bigbird_blocks, dilated, one_global
from .window import head_dims, threads, window

__all__ = ["PROBLEMS"]

PROBLEMS: dict[str, Callable[[bool], Problem]] = {
    "window": window,
    "threads": threads,
    "learned": learned,
    "cost-per-pair": cost_per_pair,
    "memory": memory,
    "global": one_global,
    "head-dims": head_dims,
    "entmax-attention": entmax_attention,
    "entmax-functions": entmax_functions,
    "bigbird": bigbird_blocks,
    "dilated": dilated,
    "compile": compiling,
    "lengths": lengths,
}
