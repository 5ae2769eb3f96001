"""Figures of a report: quality and cost, learning curves, reach over training and at its end."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Band, Line, Point, histogram, line_chart, scatter_chart
from .markup import Markup, tag
from .numbers import plain
from .pictures import length_of
from .reading import Record, Run
from .scales import thin
from .setups import Setup, lower_is_better

__all__ = [
    "curve_figures",
    "final_reach_figures",
    "numbered",
    "quality_figures",
    "reach_figures",
    "reach_points",
]

SMALL = (270, 190)
MOST_REACH_POINTS = 48
FEWEST_REACH_POINTS = 12
MOST_REACH_POINTS_OF_ALL = 20_000  # in all curves and bands of a page
MOST_LAYERS = 24
MOST_NAMES = 6  # beside the points of one chart
LONGEST_NAME = 30


def numbered(setups: Sequence[Setup]) -> bool:
    """Whether points are labelled by numbers, since their names would not fit beside them."""
    return len(setups) > MOST_NAMES or any(len(setup.name) > LONGEST_NAME for setup in setups)


def quality_figures(setups: Sequence[Setup]) -> list[Markup]:
    """The main measure against pairs and against time."""
    metric = setups[0].metric
    figures = []
    for name, label, title in (
        ("pairs", "pairs", "Quality against pairs"),
        ("seconds", "seconds", "Quality against time"),
    ):
        points = []
        for number, setup in enumerate(setups, start=1):
            across, up = setup.spread(name), setup.spread(metric)
            if across is not None and up is not None:
                points.append(
                    Point(
                        setup.name,
                        str(number) if numbered(setups) else setup.name,
                        setup.place,
                        across.mean,
                        up.mean,
                        across.deviation or 0.0,
                        up.deviation or 0.0,
                    )
                )
        if points:
            better = "lower" if lower_is_better(setups) else "higher"
            told = [f"{p.name}: {label} {plain(p.x)}, {metric} {plain(p.y, 4)}" for p in points]
            chart = scatter_chart(
                points,
                x_label=label,
                y_label=f"{metric} ({better} is better)",
                about=f"{title}. {'; '.join(told)}",
            )
            figures.append(tag("figure", tag("h3", title), chart))
    return figures


def curve_figures(setups: Sequence[Setup]) -> list[Markup]:
    """Loss in training and the main measure on held-out text, a line a run."""
    metric = setups[0].metric
    losses, measures = [], []
    for setup in setups:
        for run in setup.runs:
            name = setup.run_name(run)
            loss = [(r.at, r.loss) for r in run.records if r.kind == "train" and r.loss is not None]
            held = [
                (r.at, value)
                for r in run.records
                if r.kind != "train" and (value := _measure(r, metric)) is not None
            ]
            losses += [Line(name, setup.place, loss)] if loss else []
            measures += [Line(name, setup.place, held)] if held else []
    figures = []
    for lines, title, label in (
        (losses, "Loss in training", "loss"),
        (measures, f"{metric or 'Loss'} on held-out text", metric or "loss"),
    ):
        if lines:
            told = [f"{line.name} ends at {plain(line.points[-1][1], 4)}" for line in lines]
            chart = line_chart(
                lines,
                x_label="step",
                y_label=label,
                about=f"{title}. {'; '.join(told)}",
                log=None if lines is losses else False,
            )
            figures.append(tag("figure", tag("h3", title), chart))
    return figures


def reach_points(setups: Sequence[Setup]) -> int:
    """How many points a curve of reach has, so that all of them together fit a page."""
    curves = 0
    for setup in setups:
        run = _with_reach(setup)
        reach = max((record.reach for record in run.records), key=len) if run else ()
        # Beside its heads, a layer has a mean and two bands with two sides each.
        curves += sum(5 + len(layer.heads) for layer in reach[:MOST_LAYERS] if layer is not None)
    share = MOST_REACH_POINTS_OF_ALL // max(1, curves)
    return max(FEWEST_REACH_POINTS, min(MOST_REACH_POINTS, share))


def _with_reach(setup: Setup) -> Run | None:
    return setup.first_with(lambda run: any(record.reach for record in run.records))


def reach_figures(setup: Setup, points: int) -> list[Markup]:
    """Reach over training, a figure a layer, of the setup's first run that recorded it."""
    run = _with_reach(setup)
    if run is None:
        return []
    layers = min(MOST_LAYERS, max(len(record.reach) for record in run.records))
    figures = []
    for layer in range(layers):
        chart = _reach_chart(setup, run, layer, points)
        if chart is not None:
            figures.append(tag("figure", tag("h3", f"layer {layer + 1}"), chart, class_="small"))
    return figures


def _reach_chart(setup: Setup, run: Run, layer: int, points: int) -> Markup | None:
    found = [
        (record.at, reach)
        for record in run.records
        if layer < len(record.reach) and (reach := record.reach[layer]) is not None
    ]
    if not found:
        return None
    # Lines and bands share their steps, so that a band never lies beside its line.
    kept = {at for at, _ in thin([(at, r.mean) for at, r in found], points)}
    found = [(at, reach) for at, reach in found if at in kept]
    quantiles = [(at, reach.quantiles) for at, reach in found if reach.quantiles]
    bands = [
        Band([(at, q[0], q[4]) for at, q in quantiles], outer=True),
        Band([(at, q[1], q[3]) for at, q in quantiles]),
    ]
    heads = min(len(reach.heads) for _, reach in found)
    lines = [
        Line(f"head {h + 1}", setup.place, [(at, r.heads[h]) for at, r in found], faint=True)
        for h in range(heads if heads > 1 else 0)
    ]
    mean = Line("mean", setup.place, [(at, reach.mean) for at, reach in found])
    first, last = found[0][1].mean, found[-1][1].mean
    return line_chart(
        [mean, *lines],
        x_label="step",
        y_label="reach, tokens",
        about=(
            f"{setup.run_name(run)}, layer {layer + 1}: mean reach from {plain(first)} "
            f"to {plain(last)} tokens"
        ),
        bands=[band for band in bands if len(band.points) > 1],
        zero=True,
        size=SMALL,
    )


def final_reach_figures(setup: Setup) -> list[Markup]:
    """Histograms of the reach of a document's tokens, a figure a layer."""
    run = setup.first_with(lambda run: run.look is not None and length_of(run.look))
    if run is None or run.look is None:
        return []
    look = run.look
    # A global token sees all there is: its own reach has no say.
    shown = [
        place for place in range(length_of(look)) if look.real[place] and not look.is_global[place]
    ]
    layers = [
        [head.reach[place] for head in layer.heads for place in shown]
        for layer in look.layers[:MOST_LAYERS]
    ]
    high = max((value for layer in layers for value in layer), default=0.0)
    figures = []
    for place, values in enumerate(layers):
        if not values:
            continue
        mean = sum(values) / len(values)
        chart = histogram(
            values,
            x_label="reach, tokens",
            about=(
                f"{setup.name}, layer {place + 1}: reach of {len(values)} tokens and heads, "
                f"mean {plain(mean)}, from {plain(min(values))} to {plain(max(values))}"
            ),
            colour=setup.place,
            high=high,
            size=SMALL,
        )
        title = f"layer {place + 1}: mean {plain(mean)}"
        figures.append(tag("figure", tag("h3", title), chart, class_="small"))
    return figures


def _measure(record: Record, metric: str) -> float | None:
    """A record's main measure: by its name, or as the one it calls its metric if it names none, as
    a stage does that is measured by another; else its loss.
    """
    if metric in record.metrics:
        return record.metrics[metric]
    if record.metrics.keys() == {"metric"}:
        return record.metrics["metric"]
    return record.loss if metric in ("", "loss") else None
