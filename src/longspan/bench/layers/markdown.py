"""A report of layers as a table for the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..records import Outcome, Report
from ..text import number, target

__all__ = ["figures_table", "save_figures", "where"]

COMMAND = (
    "longspan bench layers --from benchmarks/results/layers/bench.json -o benchmarks/results/layers"
)


def save_figures(report: Report, folder: str | Path) -> Path:
    """Writes `figures.md`, which the page about the kernels includes."""
    path = Path(folder) / "figures.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(figures_table(report), encoding="utf-8")
    return path


def figures_table(report: Report) -> str:
    """Where it ran; the figures with their targets; what every contender took."""
    quick = report.setting.get("quick")
    lines = [f"<!-- Written by `{COMMAND}`; do not edit. -->", ""]
    lines += [f"{where(device, at)}  " for device, at in report.setting["devices"].items()]
    lines += ["A quick look on small inputs, which is not judged.  "] if quick else []
    lines += ["", "| forward and backward | times faster | target | met |", "|---|---|---|---|"]
    for figure in report.figures:
        met = "" if quick or figure.met is None else "yes" if figure.met else "no"
        value = number(figure.values[1], figure.unit)
        said = f"{value} {figure.note}".strip()
        lines.append(f"| {figure.what.strip()} | {said} | {target(figure)} | {met} |")
    lines += ["", "| | contender | tokens | median, s | fastest–slowest | rounds |"]
    lines += ["|---|---|---|---|---|---|", *map(_outcome, report.outcomes)]
    return "\n".join(lines) + "\n"


def where(device: str, at: dict[str, Any]) -> str:
    """A machine in a line."""
    versions = ", ".join(f"{name} {v}" for name, v in at["versions"].items() if v)
    if device == "cuda":
        return f"{at['card']}, {at['dtype']}, {at['compiled']}; {versions}."
    threads = "1 thread" if at["threads"] == 1 else f"{at['threads']} threads"
    load = f"load before and after: {at['load before']}, {at.get('load after')}"
    return f"{at['processor']}, {threads}, {at['dtype']}, torch {at['torch']}, {versions}; {load}."


def _outcome(outcome: Outcome) -> str:
    head = f"| `{outcome.problem}` | {outcome.name} | {outcome.length:,} |"
    both = outcome.both
    if both is None:
        return f"{head} {outcome.missing} | | |"
    return f"{head} {both.median:.4g} | {both.fastest:.4g}–{both.slowest:.4g} | {both.rounds} |"
