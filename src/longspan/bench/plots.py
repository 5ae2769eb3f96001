"""Pictures of a report: time against length, and a window beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..patterns.drawing import INK, new_figure, save_figure
from .curves import crossover, curve
from .records import Figure, Report

__all__ = ["save_plots"]

COLOURS = {
    "longspan": INK,
    "SDPA, dense": "#8a94a0",
    "local-attention": "#d9822b",
    "Longformer": "#3f8f5f",
    "Performer": "#7d4f9e",
}
PASSES = {"forward": "forward", "both": "forward and backward"}


def save_plots(report: Report, folder: str | Path) -> list[Path]:
    """Saves what the report has figures for, and returns the files; needs matplotlib."""
    saved = []
    problems = {outcome.problem for outcome in report.outcomes}
    for name, save in (("lengths", _save_lengths), ("window", _save_window)):
        if name in problems:
            path = Path(folder) / f"{name}.svg"
            save(report, path)
            saved.append(path)
    return saved


def _save_lengths(report: Report, path: Path) -> None:
    outcomes = [outcome for outcome in report.outcomes if outcome.problem == "lengths"]
    figure = new_figure(9.0, 3.8)
    figure.set_layout_engine("constrained")
    for place, (which, title) in enumerate(PASSES.items()):
        axis = figure.add_subplot(1, 2, place + 1)
        curves = {name: curve(outcomes, name, which) for name in COLOURS}
        for name, times in curves.items():
            if times:
                seconds = [1e3 * value for value in times.values()]
                wide = 2.2 if name == "longspan" else 1.4
                axis.plot(
                    list(times),
                    seconds,
                    marker="o",
                    markersize=3.5,
                    linewidth=wide,
                    color=COLOURS[name],
                    label=name,
                )
        crossing = crossover(curves["longspan"], curves["SDPA, dense"])
        if crossing is not None:
            axis.axvline(crossing, color="#b0453c", linewidth=1, linestyle=":")
            axis.annotate(
                f"faster than dense\nfrom {crossing:.0f} tokens",
                (crossing, 0.03),
                xycoords=("data", "axes fraction"),
                xytext=(5, 0),
                textcoords="offset points",
                fontsize=8,
                color="#b0453c",
            )
        ticks = sorted({n for times in curves.values() for n in times})
        _lengths_axis(axis, ticks, title)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(_setting(report, "A window of 128 each side"), fontsize=9)
    save_figure(figure, path)


def _lengths_axis(axis: Any, ticks: list[int], title: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks], fontsize=7)
    axis.minorticks_off()
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set(xlabel="tokens", ylabel="ms", title=title)
    axis.grid(color="#e3e7ec", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _save_window(report: Report, path: Path) -> None:
    lines = [f for f in report.figures if f.problem == "window" and f.unit == "× floor"]
    bars = [(f.what.strip(), f) for f in lines if any(value is not None for value in f.values)]
    figure = new_figure(9.0, 0.9 + 0.36 * len(bars))
    figure.set_layout_engine("constrained")
    for place, title in enumerate(PASSES.values()):
        axis = figure.add_subplot(1, 2, place + 1)
        _bars(axis, [("longspan" if n.startswith("window") else n, f) for n, f in bars], place)
        axis.set_title(title)
    figure.suptitle(
        _setting(report, "A window of 128 each side: times the floor of its matrix products"),
        fontsize=9,
    )
    save_figure(figure, path)


def _bars(axis: Any, bars: list[tuple[str, Figure]], place: int) -> None:
    names = [name for name, _ in bars]
    values = [f.values[place] or 0.0 for _, f in bars]
    drawn = axis.barh(names, values, color=[COLOURS[name] for name in names], height=0.65)
    axis.bar_label(drawn, [f"{value:.1f}" for value in values], padding=3, fontsize=8)
    axis.axvline(1, color="#b0453c", linewidth=1, linestyle=":")
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _setting(report: Report, about: str) -> str:
    at = report.setting
    threads = "1 thread" if at["threads"] == 1 else f"{at['threads']} threads"
    sizes = "small inputs, a quick look" if at.get("quick") else "12 heads of 64, float32"
    return f"{about}; {sizes}, {at['processor']}, {threads}"
