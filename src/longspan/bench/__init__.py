"""How fast longspan is, beside its peers, in one process: `longspan bench`.

A *problem* is something worth timing: what longspan runs, what its peers run, and what is asked of
the figures. Its *contenders* take turns, so that a machine that slows down slows all of them, and
each is given by its median. Nothing here is run by a test.
"""

from .machine import warm_allocator
from .problems import PROBLEMS
from .records import Figure, Outcome, Report, Sample, load, save
from .runner import run

__all__ = [
    "PROBLEMS",
    "Figure",
    "Outcome",
    "Report",
    "Sample",
    "load",
    "run",
    "save",
    "warm_allocator",
]
