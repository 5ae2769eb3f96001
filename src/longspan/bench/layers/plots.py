"""A picture of a report of layers: how many times faster, with targets and ceilings."""

from __future__ import annotations

from pathlib import Path

from ...patterns.drawing import INK, new_figure, save_figure
from ..records import Figure, Report

__all__ = ["save_plots"]

TARGET, CEILING = "#b0453c", "#9fb3c8"


def save_plots(report: Report, folder: str | Path) -> list[Path]:
    """Saves what the report has figures for, and returns the files; needs matplotlib."""
    shown = [figure for figure in report.figures if _asked(figure) and figure.values[1]]
    if not shown:
        return []
    ceilings = {f.problem: f.values[1] for f in report.figures if not _asked(f) and f.values[1]}
    figure = new_figure(7.5, 1.2 + 0.42 * len(shown))
    figure.set_layout_engine("constrained")
    axis = figure.add_subplot(1, 1, 1)
    places = range(len(shown))
    for at, one in zip(places, shown, strict=True):
        ceiling = ceilings.get(one.problem)
        if ceiling is not None:
            axis.barh(at, ceiling, color=CEILING, height=0.62)
    values = [one.values[1] or 0.0 for one in shown]
    axis.barh(places, values, color=INK, height=0.4)
    for at, one in zip(places, shown, strict=True):
        axis.text(0.05, at, f"{values[at]:.2f}", color="white", fontsize=8, va="center")
        axis.plot([one.targets[1]] * 2, [at - 0.38, at + 0.38], color=TARGET)
    axis.set_yticks(list(places), [one.problem for one in shown])
    axis.axvline(1, color="#8a94a0", linewidth=1)
    axis.invert_yaxis()
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    quick = "; small inputs, a quick look" if report.setting.get("quick") else ""
    axis.set_title(
        "Forward and backward, times faster than Hugging Face's own;\n"
        f"red: targets, light: without any attention{quick}",
        fontsize=9,
    )
    path = Path(folder) / "layers.svg"
    save_figure(figure, path)
    return [path]


def _asked(figure: Figure) -> bool:
    return figure.targets[1] is not None
