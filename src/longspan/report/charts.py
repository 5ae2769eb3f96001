"""Charts as SVG: lines, points with error bars, bars. Colours are classes of the page's style."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from .markup import Markup, joined, tag
from .numbers import plain
from .scales import Scale, scale_for, thin

__all__ = [
    "COLOURS",
    "Band",
    "Line",
    "Point",
    "bar_chart",
    "histogram",
    "line_chart",
    "scatter_chart",
]

# As many as the style has; charts with more begin again.
COLOURS = 8
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 12, 48
MOST_POINTS = 240
LETTER = 7.4  # the width of a letter of a label, on average, in the units of the drawing
BAR = 24  # the height of a bar, with what is free around it
LINE = 15  # the height of a label's line


class Line(NamedTuple):
    """A curve: its name, the number of its colour, its points, and whether it is a thin one."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]
    faint: bool = False


class Band(NamedTuple):
    """The area between two curves: (x, low, high), and whether it is the paler, outer one."""

    points: Sequence[tuple[float, float, float]]
    outer: bool = False


class Point(NamedTuple):
    """A point: its name, what is written beside it, its colour, and its place with deviations."""

    name: str
    label: str
    colour: int
    x: float
    y: float
    x_deviation: float = 0.0
    y_deviation: float = 0.0


def line_chart(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    about: str,
    bands: Sequence[Band] = (),
    zero: bool = False,
    log: bool | None = False,
    most: int = MOST_POINTS,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Markup:
    """Curves over one axis; the page's script shows their values where one points.

    Args:
        lines: the curves; those with many points are thinned out.
        x_label: what lies along.
        y_label: what lies upwards.
        about: what is seen, for those who do not see it.
        bands: areas behind the curves.
        zero: whether the upward axis begins at 0.
        log: whether it is logarithmic; None where values are positive and far apart.
        most: points of a curve that are kept.
        size: width and height of the drawing.
    """
    thinned = [line._replace(points=thin(line.points, most)) for line in lines if line.points]
    ys = [y for line in thinned for _, y in line.points]
    ys += [end for band in bands for _, low, high in band.points for end in (low, high)]
    xs = [x for line in thinned for x, _ in line.points]
    x, y = _scales(xs, ys, size, zero=zero, x_margin=0.0, x_log=False, y_log=log)
    drawn = []
    for band in bands:
        forth = [f"{x(at):.1f},{y(high):.1f}" for at, _, high in band.points]
        back = [f"{x(at):.1f},{y(low):.1f}" for at, low, _ in reversed(band.points)]
        name = f"band c{thinned[0].colour % COLOURS}" if thinned else "band"
        outline = "M" + "L".join(forth + back) + "Z"
        drawn.append(tag("path", class_=name + (" outer" if band.outer else ""), d=outline))
    for line in thinned:
        name = f"line c{line.colour % COLOURS}" + (" faint" if line.faint else "")
        places = [f"{x(at):.1f},{y(value):.1f}" for at, value in line.points]
        if len(places) == 1:
            cx, cy = places[0].split(",")
            drawn.append(tag("circle", class_=name.replace("line", "dot"), cx=cx, cy=cy, r=3))
        else:
            drawn.append(tag("path", class_=name, d="M" + "L".join(places)))
    values: list[list[Any]] = []
    before: list[float] | None = None
    for line in thinned:
        across = [_short(at) for at, _ in line.points]
        ups = [_short(value) for _, value in line.points]
        # Curves that share their places with the one before need not repeat them.
        values.append([line.name, line.colour % COLOURS, None if across == before else across, ups])
        before = across
    return _svg(
        [*_axes(x, y, x_label, y_label, size), *drawn],
        about,
        size,
        class_="chart curves",
        tabindex=0,
        data_lines=json.dumps(values, ensure_ascii=False, separators=(",", ":")),
        data_x=f"{x.low!r} {x.high!r} {x.start} {x.stop}",
        data_y=f"{y.low!r} {y.high!r} {y.start} {y.stop} {int(y.log)}",
        data_label=x_label,
    )


def scatter_chart(points: Sequence[Point], *, x_label: str, y_label: str, about: str) -> Markup:
    """Points with their names beside them, and bars of one deviation to each side."""
    size = (WIDTH, HEIGHT)
    xs = [p.x + s * p.x_deviation for p in points for s in (-1, 1)]
    ys = [p.y + s * p.y_deviation for p in points for s in (-1, 1)]
    x, y = _scales(xs, ys, size, x_margin=0.12, y_margin=0.1, y_log=False)
    drawn = []
    for p in points:
        name = f"c{p.colour % COLOURS}"
        if p.x_deviation:
            left, right = x(p.x - p.x_deviation), x(p.x + p.x_deviation)
            drawn.append(_stroke(f"error {name}", left, y(p.y), right, y(p.y)))
        if p.y_deviation:
            low, high = y(p.y - p.y_deviation), y(p.y + p.y_deviation)
            drawn.append(_stroke(f"error {name}", x(p.x), low, x(p.x), high))
        told = f"{p.name}: {x_label} {plain(p.x)}, {y_label} {plain(p.y, 4)}"
        drawn.append(
            tag(
                "circle",
                tag("title", told),
                class_=f"dot {name}",
                cx=f"{x(p.x):.1f}",
                cy=f"{y(p.y):.1f}",
                r=5,
            )
        )
    drawn += _names_beside(points, x, y)
    return _svg([*_axes(x, y, x_label, y_label, size), *drawn], about, size)


def histogram(
    values: Sequence[float],
    *,
    x_label: str,
    about: str,
    colour: int,
    high: float,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Markup:
    """Bars of how many of the values, all in 0…high, lie where; as a share of them."""
    bins = 24
    # A little more, so that the largest do not stand at the edge.
    end = 1.04 * high or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value / end * bins))] += 1
    shares = [100 * count / max(1, len(values)) for count in counts]
    x, y = _scales([0.0, end], [0.0, *shares], size, zero=True, x_margin=0.0, x_log=False)
    bars = []
    for place, share in enumerate(shares):
        left, right = x(place * end / bins), x((place + 1) * end / bins)
        if share:
            bars.append(
                tag(
                    "rect",
                    class_=f"bar c{colour % COLOURS}",
                    x=f"{left + 0.5:.1f}",
                    y=f"{y(share):.1f}",
                    width=f"{right - left - 1:.1f}",
                    height=f"{y(0) - y(share):.1f}",
                )
            )
    return _svg([*_axes(x, y, x_label, "% of tokens", size), *bars], about, size)


def bar_chart(
    bars: Sequence[tuple[str, float]], *, x_label: str, about: str, colour: int
) -> Markup:
    """Bars that lie one below the other, with their names on the left and their values, all 0 or
    more, on the right.
    """
    width, height = WIDTH, TOP + BAR * max(1, len(bars)) + 24
    left = min(12 + LETTER * max((len(name) for name, _ in bars), default=0), width / 2)
    x = scale_for([0.0, *(value for _, value in bars)], left, width - 60, zero=True, log=False)
    drawn = []
    for place, (name, value) in enumerate(bars):
        top = TOP + BAR * place
        drawn.append(
            tag(
                "rect",
                class_=f"bar c{colour % COLOURS}",
                x=f"{x(0):.1f}",
                y=f"{top + 3:.1f}",
                width=f"{max(x(value) - x(0), 0):.1f}",
                height=f"{BAR - 6}",
            )
        )
        drawn.append(_text(name, left - 6, top + BAR / 2 + 4, "end"))
        drawn.append(_text(plain(value), x(value) + 5, top + BAR / 2 + 4, "start"))
    drawn.append(_text(x_label, (left + width - 60) / 2, height - 6, "middle", "label"))
    return _svg(drawn, about, (width, height))


def _scales(
    xs: Sequence[float],
    ys: Sequence[float],
    size: tuple[int, int],
    *,
    zero: bool = False,
    x_margin: float,
    y_margin: float = 0.06,
    x_log: bool | None = None,
    y_log: bool | None = False,
) -> tuple[Scale, Scale]:
    width, height = size
    x = scale_for(xs, LEFT, width - RIGHT, margin=x_margin, log=x_log)
    return x, scale_for(ys, height - BOTTOM, TOP, zero=zero, margin=y_margin, log=y_log)


def _axes(x: Scale, y: Scale, x_label: str, y_label: str, size: tuple[int, int]) -> list[Markup]:
    width, height = size
    parts = []
    for value, text in y.labels(5):
        at = y(value)
        parts.append(_stroke("grid", LEFT, at, width - RIGHT, at))
        parts.append(_text(text, LEFT - 6, at + 4, "end"))
    for value, text in x.labels(5):
        at = x(value)
        parts.append(_stroke("tick", at, height - BOTTOM, at, height - BOTTOM + 4))
        parts.append(_text(text, at, height - BOTTOM + 18, "middle"))
    parts.append(_stroke("axis", LEFT, height - BOTTOM, width - RIGHT, height - BOTTOM))
    parts.append(_text(x_label, (LEFT + width - RIGHT) / 2, height - 8, "middle", "label"))
    middle = (TOP + height - BOTTOM) / 2
    parts.append(
        tag(
            "text",
            y_label,
            class_="label",
            text_anchor="middle",
            transform=f"translate(13 {middle:g}) rotate(-90)",
        )
    )
    return parts


def _names_beside(points: Sequence[Point], x: Scale, y: Scale) -> list[Markup]:
    """Names beside their points, none upon another, a point, or its bars."""
    taken = []
    for p in points:
        taken.append((x(p.x) - 7, x(p.x) + 7, y(p.y) - 6, y(p.y) + 6))
        taken.append((x(p.x - p.x_deviation), x(p.x + p.x_deviation), y(p.y) - 1, y(p.y) + 1))
        taken.append((x(p.x) - 1, x(p.x) + 1, y(p.y + p.y_deviation), y(p.y - p.y_deviation)))
    found = []
    for p in sorted(points, key=lambda p: -p.y):
        wide = len(p.label) * LETTER
        left, top = _free_place(x(p.x), y(p.y), wide, taken)
        taken.append((left, left + wide, top, top + LINE))
        found.append(_text(p.label, left, top + 12, "start", f"name c{p.colour % COLOURS}"))
    return found


def _free_place(
    px: float, py: float, wide: float, taken: Sequence[tuple[float, float, float, float]]
) -> tuple[float, float]:
    """Left and top of a label near a point, right of it before left of it, where nothing is."""
    last = WIDTH - 4 - wide
    for shift in (s * sign for s in range(0, HEIGHT, 4) for sign in (-1, 1)):
        top = py - LINE / 2 + shift
        if not TOP <= top <= HEIGHT - BOTTOM - LINE:
            continue
        for left in (px + 10, px - 10 - wide, min(last, max(LEFT + 2, px - wide / 2))):
            free = all(
                left >= x1 or left + wide <= x0 or top >= y1 or top + LINE <= y0
                for x0, x1, y0, y1 in taken
            )
            if free and LEFT + 2 <= left <= last:
                return left, top
    return max(LEFT + 2, min(last, px + 10)), py - LINE / 2


def _stroke(name: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return tag("path", class_=name, d=f"M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}")


def _text(text: str, x: float, y: float, anchor: str, name: str | None = None) -> Markup:
    return tag("text", text, class_=name, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _svg(
    parts: Sequence[Markup],
    about: str,
    size: tuple[int, int],
    *,
    class_: str = "chart",
    **attributes: object,
) -> Markup:
    return tag(
        "svg",
        joined(parts),
        class_=class_,
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_label=about,
        **attributes,
    )


def _short(value: float) -> float:
    """Six digits are what a pointer can tell, and what a file should carry."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short
