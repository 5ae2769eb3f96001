"""Recipes: functions that give a plan of runs."""

from __future__ import annotations

from collections.abc import Callable

from .comparison import MECHANISMS, comparison
from .long_documents import long_documents
from .longer_texts import longer_texts
from .narrow_ideas import narrow_ideas
from .narrow_windows import narrow_windows
from .plan import Plan, Planned, over_seeds
from .quick import quick
from .scales import scales
from .unanswerable import unanswerable
from .window_table import window_table

__all__ = [
    "MECHANISMS",
    "RECIPES",
    "Plan",
    "Planned",
    "comparison",
    "long_documents",
    "longer_texts",
    "narrow_ideas",
    "narrow_windows",
    "over_seeds",
    "quick",
    "scales",
    "unanswerable",
    "window_table",
]

RECIPES: dict[str, Callable[..., Plan]] = {
    "quick": quick,
    "narrow_windows": narrow_windows,
    "narrow_ideas": narrow_ideas,
    "window_table": window_table,
    "scales": scales,
    "long_documents": long_documents,
    "longer_texts": longer_texts,
    "unanswerable": unanswerable,
}
