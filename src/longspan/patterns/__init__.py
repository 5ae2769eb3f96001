"""Which (query, key) pairs exist. Patterns are values; `|` and `&` combine them."""

from .base import AllOf, AnyOf, Full, Pattern, PerHead
from .causal import Causal
from .documents import SameDocument
from .fixed import Fixed, Summaries
from .global_tokens import Global
from .mask import Mask
from .paths import Hops
from .presets import bigbird, longformer, sparse_fixed, sparse_strided
from .random_blocks import Random
from .strided import Strided
from .window import BlockWindow, Window

__all__ = [
    "AllOf",
    "AnyOf",
    "BlockWindow",
    "Causal",
    "Fixed",
    "Full",
    "Global",
    "Hops",
    "Mask",
    "Pattern",
    "PerHead",
    "Random",
    "SameDocument",
    "Strided",
    "Summaries",
    "Window",
    "bigbird",
    "longformer",
    "sparse_fixed",
    "sparse_strided",
]
