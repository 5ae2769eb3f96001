"""Pictures of what every token sees: queries go down, keys across, a picture a layer."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import COLOURS
from .looks import Layer, Look
from .markup import Markup, joined, tag
from .setups import Setup

__all__ = ["length_of", "looks_of", "pattern_pictures", "rows_for"]

SIDE = 480  # of a picture, in its own units; places are whole ones, which keeps a page small
MOST_ROWS = 120  # of an interval's outline
FEWEST_ROWS = 12
MOST_ROWS_OF_ALL = 20_000  # of all outlines of a page
MOST_LAYERS = 24


def looks_of(setups: Sequence[Setup]) -> list[tuple[Setup, Look]]:
    """The setups that have a document, each with that of its first run that has one."""
    found = []
    for setup in setups:
        run = setup.first_with(lambda run: run.look is not None and length_of(run.look))
        if run is not None and run.look is not None:
            found.append((setup, run.look))
    return found


def rows_for(looks: Sequence[Look]) -> int:
    """How many rows of each outline are drawn, so that all of them together fit a page."""
    heads = sum(len(layer.heads) for look in looks for layer in look.layers[:MOST_LAYERS])
    return max(FEWEST_ROWS, min(MOST_ROWS, MOST_ROWS_OF_ALL // max(1, heads)))


def pattern_pictures(setup: Setup, look: Look, rows: int) -> Markup:
    """A picture for each layer of a setup; what more of its heads see is stronger."""
    shown = look.layers[:MOST_LAYERS]
    figures = [
        tag(
            "figure",
            _picture(layer, place + 1, look, setup, rows),
            tag("figcaption", f"layer {place + 1}: {_seen(layer, look)}"),
            class_="small",
        )
        for place, layer in enumerate(shown)
    ]
    return tag("div", joined(figures), class_="tiles")


def length_of(look: Look) -> int:
    """The number of tokens without the padding at the end."""
    return max((place + 1 for place, real in enumerate(look.real) if real), default=0)


def _seen(layer: Layer, look: Look) -> str:
    n = length_of(look)
    pairs = sum(
        max(0, head.high[i] - head.low[i] + 1) for head in layer.heads for i in range(n)
    ) / max(1, n * len(layer.heads))
    return f"{pairs:,.0f} of {n:,} tokens in the mean interval"


def _picture(layer: Layer, number: int, look: Look, setup: Setup, rows: int) -> Markup:
    n = length_of(look)
    unit = SIDE / max(1, n)
    sampled = sorted({round(k * (n - 1) / max(1, min(rows, n) - 1)) for k in range(min(rows, n))})
    # A head's share of the ink: all of them together are as dark as one that stands alone.
    ink = 1 - 0.12 ** (1 / len(layer.heads))
    parts = [tag("rect", class_="paper", width=SIDE, height=SIDE)]
    for head in layer.heads:
        outline = _outline(head.low, head.high, sampled, unit)
        parts.append(
            tag(
                "path",
                class_=f"fill c{setup.place % COLOURS}",
                fill_opacity=f"{ink:.3f}",
                d=outline,
            )
        )
    for start, stop in _stretches(look.is_global[:n]):
        at, wide = f"{start * unit:.1f}", f"{max(1.6, (stop - start) * unit):.1f}"
        parts.append(tag("rect", class_="global", x=at, width=wide, height=SIDE))
        parts.append(tag("rect", class_="global", y=at, width=SIDE, height=wide))
    return tag(
        "svg",
        joined(parts),
        class_="picture",
        viewBox=f"0 0 {SIDE} {SIDE}",
        role="img",
        aria_label=f"{setup.name}, layer {number}: which of {n} tokens each token sees",
    )


def _outline(low: Sequence[int], high: Sequence[int], rows: Sequence[int], unit: float) -> str:
    """The area between the first and the last key, down one side and up the other."""
    ends = [(row * unit, low[row] * unit, (max(low[row], high[row] + 1)) * unit) for row in rows]
    if ends:
        ends.append((rows[-1] * unit + unit, *ends[-1][1:]))
    down = [f"{left:.0f},{y:.0f}" for y, left, _ in ends]
    up = [f"{right:.0f},{y:.0f}" for y, _, right in reversed(ends)]
    return "M" + "L".join(down + up) + "Z" if ends else ""


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Where flags are set: the first place of each stretch, and the place after it."""
    found: list[tuple[int, int]] = []
    for place, flag in enumerate(flags):
        if not flag:
            continue
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found
