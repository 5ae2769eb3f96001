"""How much a pair that exists counts before it is normalised; may be learned."""

from .base import Place, Weight
from .bell import Bell
from .biases import Alibi, Bias, DistanceBias
from .conversions import reach_of, variance_of
from .ramp import Ramp
from .relative_position import RelativePosition

__all__ = [
    "Alibi",
    "Bell",
    "Bias",
    "DistanceBias",
    "Place",
    "Ramp",
    "RelativePosition",
    "Weight",
    "reach_of",
    "variance_of",
]
