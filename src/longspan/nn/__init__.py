"""Mechanisms: attention as modules."""

from .attention import Attention
from .bigbird import BigBird
from .full_attention import FullAttention
from .learned_window import LearnedWindow, pool_budgets
from .mechanism import Asked, Mechanism, Setting
from .multihead import MultiheadAttention
from .parameter_groups import parameter_groups
from .sliding_window import SlidingWindow

__all__ = [
    "Asked",
    "Attention",
    "BigBird",
    "FullAttention",
    "LearnedWindow",
    "Mechanism",
    "MultiheadAttention",
    "Setting",
    "SlidingWindow",
    "parameter_groups",
    "pool_budgets",
]
