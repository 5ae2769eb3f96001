"""A pattern and a reach, compiled to what kernels walk: intervals and tiles."""

from .compile import Cut, compile_layout
from .existence import Existence
from .parts import TILE, Layout, Order, Part, TileList, Walk
from .visit import Group, Plan, Units, dense, pairs, plan_of, tiles_touched

__all__ = [
    "TILE",
    "Cut",
    "Existence",
    "Group",
    "Layout",
    "Order",
    "Part",
    "Plan",
    "TileList",
    "Units",
    "Walk",
    "compile_layout",
    "dense",
    "pairs",
    "plan_of",
    "tiles_touched",
]
