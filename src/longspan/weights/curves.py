"""The curve of a bell: where it is cut, where a dtype can no longer hold it, and pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch

from ..errors import need_number
from ..patterns.drawing import INK, check_suffix, new_figure, save_figure
from .conversions import reach_of

__all__ = ["Underflow", "draw_curve", "save_curve", "underflow_of"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDEST = 1e18
BARS = " ▁▂▃▄▅▆▇█"


class Underflow(NamedTuple):
    """Where exp(−d²/(2·variance)), rounded to a dtype, leaves its range.

    Attributes:
        subnormal: the first distance at which it is below the smallest normal number: it has fewer
            digits there, or is 0 at once.
        zero: the first distance at which it is 0.
    """

    subnormal: int
    zero: int


def underflow_of(variance: float, dtype: torch.dtype) -> Underflow:
    """The first whole distances at which a bell's curve, rounded to nearest, underflows."""
    _check_variance(variance)
    info = torch.finfo(dtype)
    # Below the smallest normal number all numbers are multiples of one step. What is within half a
    # step of a number rounds to it; half a step itself is a tie and rounds to 0, the even one.
    step = info.smallest_normal * info.eps
    subnormal = _distance(variance, info.smallest_normal - step / 2)
    zero = _distance(variance, step / 2)
    return Underflow(math.floor(subnormal) + 1, math.ceil(zero))


def draw_curve(variance: float, threshold: float, *, width: int = 65, height: int = 8) -> str:
    """Draws the curve for a terminal: solid within the reach, grey beyond it."""
    reach = reach_of(variance, threshold)
    far = _far(variance, reach)
    step = -(-(2 * far + 1) // width)
    side = far // step
    bar = max(1, width // (2 * side + 1))
    columns = [d * step for d in range(-side, side + 1)]
    marks = {d: (int(d / step) + side) * bar + bar // 2 for d in (0, -reach, reach)}
    lines = []
    for row in reversed(range(height)):
        label = "1" if row == height - 1 else ""
        label = f"{threshold:.2g}" if row == int(threshold * height) else label
        cells = (_cell(_curve(variance, d) * height - row, abs(d) <= reach) * bar for d in columns)
        lines.append(f"{label:>7} │{''.join(cells)}".rstrip())
    axis = ["─"] * (len(columns) * bar)
    for place in marks.values():
        axis[place] = "┴"
    lines.append(f"{'':7} └{''.join(axis)}")
    lines.append(f"{'':7}  {_labels(marks, len(axis))}")
    return "\n".join(lines)


def save_curve(variance: float, threshold: float, path: str | Path) -> None:
    """Saves a picture: the curve and its cut; and, in powers of ten, where each dtype loses it."""
    check_suffix(path)
    reach = reach_of(variance, threshold)
    figure = new_figure(9, 3.4)
    figure.set_layout_engine("constrained")
    near, log = figure.subplots(1, 2)

    far = _far(variance, reach)
    x = [far * s / 200 for s in range(-200, 201)]
    y = [_curve(variance, d) for d in x]
    near.plot(x, y, color=INK)
    near.fill_between(x, y, where=[abs(d) <= reach for d in x], color=INK, alpha=0.25, linewidth=0)
    near.axhline(threshold, color="#8a94a0", linestyle="--", linewidth=0.8)
    for edge in {-reach, reach}:
        near.plot([edge, edge], [0, _curve(variance, edge)], color=INK, linewidth=1)
    near.set(ylim=(0, 1.05), xlabel="distance in tokens", ylabel="U")
    title = f"variance {variance:g}, threshold {threshold:g}: reach {reach}, {2 * reach + 1} tokens"
    near.set_title(title, fontsize=9)

    limits = {dtype: underflow_of(variance, dtype) for dtype in DTYPES}
    far = max(limit.zero for limit in limits.values())
    x = [far * s / 200 for s in range(201)]
    # The power of ten itself: exp would underflow where float64 does.
    log.plot(x, [-d * d / (2 * variance) / math.log(10) for d in x], color=INK)
    for (dtype, limit), colour in zip(
        limits.items(), ("#c0392b", "#d9822b", "#3f8f5f"), strict=True
    ):
        name = str(dtype).removeprefix("torch.")
        label = f"{name}: subnormal from {limit.subnormal}, 0 from {limit.zero}"
        log.axvspan(limit.subnormal, limit.zero, color=colour, alpha=0.15, linewidth=0)
        log.axvline(limit.zero, color=colour, linewidth=1, label=label)
    log.legend(fontsize=7, loc="lower left", framealpha=0.9, edgecolor="none")
    log.set(xlim=(0, None), xlabel="distance in tokens", ylabel="log10 U")
    log.set_title("where a dtype underflows", fontsize=9)
    for axis in (near, log):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.locator_params(axis="x", integer=True)
    save_figure(figure, path)


def _check_variance(variance: float) -> None:
    need_number("variance", variance)
    if not 0 < variance <= WIDEST:
        raise ValueError(
            f"variance must be above 0 and at most {WIDEST:g} to be drawn, got {variance}"
        )


def _curve(variance: float, distance: float) -> float:
    return math.exp(-distance * distance / (2 * variance))


def _distance(variance: float, value: float) -> float:
    """Where the curve has fallen to a value."""
    return math.sqrt(-2 * variance * math.log(value))


def _far(variance: float, reach: int) -> int:
    """How far to draw: three standard deviations, and past the reach."""
    _check_variance(variance)
    return max(reach + 1, math.ceil(3 * math.sqrt(variance)))


def _cell(filled: float, inside: bool) -> str:
    """The character of a column whose bar fills so much of a row."""
    if not inside:
        return "░" if filled >= 0.5 else " "
    return BARS[round(min(max(filled, 0), 1) * 8)]


def _labels(marks: dict[int, int], width: int) -> str:
    """Distances written under their places on the axis, where there is room."""
    line = [" "] * width
    for distance, place in marks.items():
        text = str(distance)
        start = min(max(place - len(text) // 2, 0), width - len(text))
        if not "".join(line[max(start - 1, 0) : start + len(text) + 1]).strip():
            line[start : start + len(text)] = text
    return "".join(line).rstrip()
