"""Pictures of records: quality against pairs, and reaches over training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from ..patterns.drawing import new_figure, save_figure
from .comparing import Compared, compared
from .records import Done, Lines

__all__ = ["save_quality", "save_reaches"]

# Matplotlib has so many colours, and begins again; then marks are others.
COLOURS, MARKERS = 10, "os^Dv"
# What names of rows have in them.
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
# Panels of a picture, at most.
MOST_PANELS = 12


def save_quality(done: Sequence[Done], path: Path) -> Path:
    """The main measure against pairs, a point a row, with the deviation over seeds. Rows whose
    names differ in one number alone are a line, whose points have that number beside them.
    """
    first = done[0][1]
    rows = compared(done, lower_is_better=bool(first.get("lower_is_better")))
    families: dict[str, list[Compared]] = {}
    for row in rows:
        if row.pairs is not None:
            families.setdefault(_family(row.row), []).append(row)
    if not families:
        raise ValueError("none of the records says how many pairs it has")
    lines = [line for family in families.values() for line in _lines(family)]
    figure = new_figure(8.0, 4.8)  # which says what to install, if there is no matplotlib
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    figure.set_layout_engine("constrained")
    axis = figure.add_subplot()
    for number, own in enumerate(lines):
        own.sort(key=_pairs)
        name, labels = _told([row.row for row in own])
        axis.errorbar(
            [_pairs(row) for row in own],
            [row.quality.mean for row in own],
            yerr=[row.quality.deviation or 0.0 for row in own],
            marker=MARKERS[number // COLOURS % len(MARKERS)], markersize=4, linewidth=1, capsize=2,
            label=name,
        )  # fmt: skip
        for row, label in zip(own, labels, strict=True):
            axis.annotate(
                label, (_pairs(row), row.quality.mean), xytext=(4, 4), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
    axis.set_xscale("log")
    axis.margins(x=0.08)  # Room for what stands beside the last point.
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("pairs of an example, over all layers and heads", fontsize=8)
    axis.set_ylabel(str(first["metric"]), fontsize=8)
    axis.tick_params(labelsize=7.5)
    axis.grid(linewidth=0.3)
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)
    return path


def save_reaches(lines: Sequence[Lines], path: Path) -> Path:
    """How far the layers reach over training, on average over tokens, heads and seeds: a panel a
    row, a line a layer.
    """
    rows: dict[str, list[list[dict[str, Any]]]] = {}
    for planned, own in lines:
        told = [line for line in own if "reach" in line]
        if told:
            rows.setdefault(planned.row, []).append(told)
    if not rows:
        raise ValueError("none of the records has a learned reach")
    if len(rows) > MOST_PANELS:
        raise ValueError(
            f"{len(rows)} rows have a learned reach, and a picture has room for {MOST_PANELS}: "
            "choose some by their names, with only"
        )
    columns = min(3, len(rows))
    height = -(-len(rows) // columns)
    figure = new_figure(3.6 * columns, 2.8 * height)
    figure.set_layout_engine("constrained")
    for place, (row, runs) in enumerate(rows.items()):
        axis = figure.add_subplot(height, columns, place + 1)
        # Runs of a row have the same steps.
        steps = [line["step"] for line in runs[0]]
        for layer, first in enumerate(runs[0][0]["reach"]):
            if first is None:
                continue
            means = [fmean(run[n]["reach"][layer] for run in runs) for n in range(len(steps))]
            axis.plot(steps, means, linewidth=1, label=f"layer {layer + 1}")
        axis.set_title(row, fontsize=8, wrap=True)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("step", fontsize=7)
        axis.set_ylabel("mean reach", fontsize=7)
    figure.axes[0].legend(fontsize=6)
    save_figure(figure, path)
    return path


def _family(row: str) -> str:
    """The name without its numbers."""
    bare = NUMBER.sub("", row)
    return re.sub(r"\s+", " ", bare).replace(" ,", ",").strip()


def _lines(family: Sequence[Compared]) -> list[list[Compared]]:
    """Rows of a family, apart by all of their numbers but the one that differs most."""
    numbers = [NUMBER.findall(row.row) for row in family]
    counts = [len(set(own)) for own in zip_longest(*numbers)]
    along = counts.index(max(counts)) if counts else 0
    found: dict[tuple[str, ...], list[Compared]] = {}
    for row, own in zip(family, numbers, strict=True):
        found.setdefault((*own[:along], *own[along + 1 :]), []).append(row)
    return list(found.values())


def _told(rows: Sequence[str]) -> tuple[str, list[str]]:
    """The name of rows that differ in their numbers alone, with … for those that differ, and these
    of each row.
    """
    numbers = [NUMBER.findall(row) for row in rows]
    differ = [len(set(own)) > 1 for own in zip_longest(*numbers)]
    place = iter(differ)
    name = NUMBER.sub(lambda found: "…" if next(place) else found[0], rows[0])
    return name, [" ".join(compress(own, differ)) for own in numbers]


def _pairs(row: Compared) -> float:
    assert row.pairs is not None
    return row.pairs.mean
