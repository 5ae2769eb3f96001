"""Whole layers and encoders, with projections and all that is not attention, beside Hugging Face's:
`longspan bench layers`.

Here a ratio has a ceiling: what is not attention takes as long for both. For encoders the ceiling
is measured too, with an attention that costs nothing.
"""

from ..records import load, save
from .problems import PROBLEMS, Entrant
from .runner import merged, run

__all__ = ["PROBLEMS", "Entrant", "load", "merged", "run", "save"]
