"""Pictures of a GPU report: ratios with their targets, time per token, and what is left to gain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...patterns.drawing import INK, new_figure, save_figure
from .contenders import OURS
from .peers import FLEX, FLEX_SMALL
from .records import Figure, Report, Result
from .rows.lengths import tokens_of

__all__ = ["save_plots"]

COLOURS = {OURS: INK, FLEX: "#d9822b"}
SMALL = "#9fb3c8"
TARGET = "#b0453c"
PASSES = ("forward", "backward")


def save_plots(report: Report, folder: str | Path) -> list[Path]:
    """Saves what the report has figures for, and returns the files; needs matplotlib."""
    saved = []
    for name, save in (
        ("ratios", _save_ratios),
        ("per_token", _save_per_token),
        ("floor", _save_floor),
    ):
        path = Path(folder) / f"{name}.svg"
        if save(report, path):
            saved.append(path)
    return saved


def _save_ratios(report: Report, path: Path) -> bool:
    passes, small = _ratios(report, FLEX), _ratios(report, FLEX_SMALL)
    if not passes:
        return False
    rows = max(map(len, passes.values()))
    figure = new_figure(4.2 * len(passes) + 0.6, 1.1 + 0.34 * rows)
    figure.set_layout_engine("constrained")
    for place, (which, bars) in enumerate(passes.items()):
        axis = figure.add_subplot(1, len(passes), place + 1)
        values = [found.value or 0.0 for _, found in bars]
        axis.barh([row for row, _ in bars], values, color=INK, height=0.62)
        _draw_small(axis, [row for row, _ in bars], dict(small.get(which, [])))
        for at, (_, found) in enumerate(bars):
            axis.text(0.06, at, f"{values[at]:.2f}", color="white", fontsize=8, va="center")
            for limit, style in ((found.target, "-"), (found.stretch, ":")):
                if limit is not None:
                    axis.plot([limit] * 2, [at - 0.38, at + 0.31], style, color=TARGET)
        axis.axvline(1, color="#8a94a0", linewidth=1)
        axis.set_title(which, fontsize=10)
        _plain(axis, bars=True)
    figure.suptitle(_setting(report, f"Times faster than {FLEX}; lines are targets"), fontsize=9)
    save_figure(figure, path)
    return True


def _ratios(report: Report, peer: str) -> dict[str, list[tuple[str, Figure]]]:
    """By pass, rows and their figures beside a peer."""
    found: dict[str, list[tuple[str, Figure]]] = {}
    for result in report.results:
        for figure in result.figures:
            which, _, rest = figure.what.partition(", ")
            if rest == f"faster than {peer}" and figure.value is not None:
                found.setdefault(which, []).append((result.row, figure))
    return found


def _draw_small(axis: Any, rows: list[str], figures: dict[str, Figure]) -> None:
    """A thin bar below the others' for FlexAttention's smaller blocks, which have no target."""
    values = {at: figures[row].value or 0.0 for at, row in enumerate(rows) if row in figures}
    if not values:
        return
    at = [place + 0.39 for place in values]
    axis.barh(at, list(values.values()), color=SMALL, height=0.17, label=f"than {FLEX_SMALL}")
    for place, value in values.items():
        axis.text(0.06, place + 0.39, f"{value:.2f}", fontsize=6, va="center")
    axis.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def _save_per_token(report: Report, path: Path) -> bool:
    result = report.result("lengths")
    if result is None or not any(entry.passes for entry in result.entries):
        return False
    figure = new_figure(6.0, 3.6)
    figure.set_layout_engine("constrained")
    axis = figure.add_subplot(1, 1, 1)
    for which, style in zip(PASSES, ("-", "--"), strict=True):
        points = {}
        for entry in result.entries:
            batch, length = tokens_of(entry)
            if which in entry.passes:
                points[length] = 1e3 * entry.passes[which].median / (batch * length)
        if points:
            axis.plot(
                list(points), list(points.values()), style, marker="o", color=INK, label=which
            )
            axis.set_xscale("log", base=2)
            axis.set_xticks(list(points), [f"{n:,}" for n in points], fontsize=7)
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set(xlabel="tokens", ylabel="ns per token")
    axis.grid(color="#e3e7ec", linewidth=0.7)
    axis.legend(frameon=False, fontsize=8)
    _plain(axis)
    figure.suptitle(_setting(report, "A window of 128 each side"), fontsize=9)
    save_figure(figure, path)
    return True


def _save_floor(report: Report, path: Path) -> bool:
    shown = [result for result in report.results if _share(result, OURS, "forward") is not None]
    if not shown:
        return False
    figure = new_figure(9.0, 1.1 + 0.5 * len(shown))
    figure.set_layout_engine("constrained")
    for place, which in enumerate(PASSES):
        axis = figure.add_subplot(1, 2, place + 1)
        for offset, (name, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
            shares = [100 * (_share(result, name, which) or 0.0) for result in shown]
            at = [row + offset for row in range(len(shown))]
            drawn = axis.barh(at, shares, color=colour, height=0.36, label=name)
            labels = [f"{share:.0f}" if share else "" for share in shares]
            axis.bar_label(drawn, labels, padding=3, fontsize=7)
        axis.set_yticks(range(len(shown)), [result.row for result in shown])
        axis.axvline(100, color=TARGET, linewidth=1, linestyle=":")
        axis.set_title(which, fontsize=10)
        axis.set(xlabel="needed, % of the time taken")
        _plain(axis, bars=True)
    figure.axes[1].legend(frameon=False, fontsize=8, loc="center right")
    about = "The time that bytes or flops need, as a share of the time taken"
    figure.suptitle(_setting(report, about), fontsize=9)
    save_figure(figure, path)
    return True


def _share(result: Result, name: str, which: str) -> float | None:
    entry, need = result.entry(name), result.needs.get(which)
    if entry is None or need is None or need.time is None or which not in entry.passes:
        return None
    return need.time / entry.passes[which].median


def _plain(axis: Any, *, bars: bool = False) -> None:
    axis.tick_params(labelsize=8)
    if bars:
        axis.invert_yaxis()
        axis.margins(x=0.14)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _setting(report: Report, about: str) -> str:
    quick = "; small inputs, a quick look" if report.setting.get("quick") else ""
    return f"{about}; {report.setting['card']}, {report.setting['dtype']}{quick}"
