"""A report of layers on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ..records import Report
from ..table import figures_table, outcomes_table
from .markdown import where

__all__ = ["show"]


def show(report: Report, console: Console) -> None:
    """Prints where it ran, the figures beside their targets, and what every contender took."""
    for device, at in report.setting["devices"].items():
        console.print(Text(where(device, at)), soft_wrap=True)
    console.print(figures_table(report))
    console.print(outcomes_table(report))
    met = [figure.met for figure in report.figures if figure.met is not None]
    if report.setting.get("quick"):
        last = "A quick look: inputs are too small for the targets, which are not judged."
    else:
        last = f"{sum(met)} of {len(met)} targets met."
    console.print(Text(last, style="bold"), soft_wrap=True)
