"""How fast longspan is on a GPU, beside its peers, in one process: `longspan bench gpu`.

A *row* is something worth timing: ours and the peers' calls take turns, forward and backward apart,
from captured graphs where that is possible. Measuring needs torch and Triton alone: `python -m
longspan.bench.gpu`; tables and plots are made from the record, also elsewhere.
"""

from .records import Entry, Figure, Need, Report, Result, Taken, load, merged, save
from .rows import ROWS
from .runner import measure
from .tuning import tune

__all__ = [
    "ROWS",
    "Entry",
    "Figure",
    "Need",
    "Report",
    "Result",
    "Taken",
    "load",
    "measure",
    "merged",
    "save",
    "tune",
]
