"""Running plans, comparing their rows, and using what was trained."""

from .comparing import Compared, Spread, compared, share_better
from .runner import results_of, run_plan

__all__ = ["Compared", "Spread", "compared", "results_of", "run_plan", "share_better"]
