"""A GPU report as a table for the documentation."""

from __future__ import annotations

from pathlib import Path

from .contenders import OURS
from .peers import FLASH, FLEX, FLEX_SMALL
from .records import Figure, Report, Result
from .text import asked_of, number, verdict

__all__ = ["figures_table", "save_figures"]

COMMAND = "longspan bench gpu --from benchmarks/results/gpu/bench.json -o benchmarks/results/gpu"
PEERS = (OURS, FLEX, FLEX_SMALL, FLASH)
PASSES = ("forward", "backward", "step")


def save_figures(report: Report, folder: str | Path) -> Path:
    """Writes `figures.md`, which the page about the kernels includes."""
    path = Path(folder) / "figures.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(figures_table(report))
    return path


def figures_table(report: Report) -> str:
    """Where it ran; what every contender took; the figures with their targets."""
    head = f"<!-- Written by `{COMMAND}`; do not edit. -->\n\n"
    if not report.results:
        return f"{head}Nothing has been measured yet.\n"
    at = report.setting
    versions = ", ".join(f"{name} {v}" for name, v in at["versions"].items() if v)
    quick = " A quick look on small inputs, which is not judged." if at.get("quick") else ""
    lines = [f"{at['card']}, {at['dtype']}; {versions}.{quick}", ""]
    times = [line for result in report.results for line in _times(result)]
    if times:
        names = " | ".join(PEERS)
        lines += [f"| median, µs | | {names} | least |", f"|---|---|{'---|' * len(PEERS)}---|"]
        lines += [*times, ""]
    lines += ["| row | figure | value | target | met |", "|---|---|---|---|---|"]
    for result in report.results:
        lines += [_figure(result, figure, bool(quick)) for figure in result.figures]
    gone = [f"- `{r.row}`: {r.missing}" for r in report.results if r.missing]
    notes = sorted({f"- {e.name}: {e.note}" for r in report.results for e in r.entries if e.note})
    lines += ["", *gone, *notes] if gone or notes else []
    return head + "\n".join(lines) + "\n"


def _times(result: Result) -> list[str]:
    if result.entry(OURS) is None:
        return []
    found = []
    for which in PASSES:
        cells = []
        for name in PEERS:
            entry = result.entry(name)
            taken = None if entry is None else entry.passes.get(which)
            eager = "" if taken is None or taken.how == "graph" else f" ({taken.how})"
            cells.append("" if taken is None else f"{taken.median:.1f}{eager}")
        if any(cells):
            need = result.needs.get(which)
            least = "" if need is None or need.time is None else f"{need.time:.1f}"
            found.append(f"| `{result.row}` | {which} | {' | '.join(cells)} | {least} |")
    return found


def _figure(result: Result, figure: Figure, quick: bool) -> str:
    value = f"{number(figure.value, figure.unit)} {figure.unit}".strip()
    met = "" if quick else verdict(figure)
    return f"| `{result.row}` | {figure.what} | {value} | {asked_of(figure)} | {met} |"
