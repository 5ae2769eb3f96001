"""A picture of what a run's windows have learned: heads, kinds of tokens, answer and position."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..patterns.drawing import INK, new_figure, save_figure
from .numbers import plain
from .studies import Means, Study

__all__ = ["save_study_picture"]

LAYERS = "viridis"
MOST_WRITTEN = 64  # cells of a map whose numbers can be read


def save_study_picture(study: Study, path: str | Path) -> None:
    """Draws the study; panels of what its task does not tell are left out. Needs matplotlib."""
    panels: list[tuple[str, Any]] = [("Mean reach by layer and head", _heads)]
    for name, title, draw in (
        ("kind", "By kind of token", _kinds),
        ("distance", "By tokens to the answer", _distances),
        ("position", "By position in the text", _positions),
    ):
        if name in study.by:
            panels.append((title, draw))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(5.2 * columns, 3.6 * rows)
    figure.set_layout_engine("constrained")
    for place, (title, draw) in enumerate(panels):
        axis = figure.add_subplot(rows, columns, place + 1)
        draw(figure, axis, study)
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=7.5)
    figure.suptitle(
        f"What the reach learned: {study.task}, {study.tokens:,} tokens of {study.examples:,} dev "
        "examples",
        fontsize=10,
    )
    save_figure(figure, path)


def _heads(figure: Any, axis: Any, study: Study) -> None:
    heads = max(len(layer.heads) for layer in study.layers)
    nothing = float("nan")
    values = [[*layer.heads, *[nothing] * (heads - len(layer.heads))] for layer in study.layers]
    # Each cell a shape of its own, so that it stays sharp at any size.
    drawn = axis.pcolormesh(values, cmap=LAYERS, edgecolors="white", linewidth=0.5)
    axis.invert_yaxis()
    axis.set_xticks([h + 0.5 for h in range(heads)], [str(h + 1) for h in range(heads)])
    names = [str(layer.number + 1) for layer in study.layers]
    axis.set_yticks([n + 0.5 for n in range(len(names))], names)
    axis.set_xlabel("head", fontsize=8)
    axis.set_ylabel("layer", fontsize=8)
    bar = figure.colorbar(drawn, ax=axis)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)
    if heads * len(values) > MOST_WRITTEN:
        return
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value == value:
                dark = drawn.norm(value) < 0.6
                axis.text(
                    x + 0.5,
                    y + 0.5,
                    plain(value),
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="white" if dark else "black",
                )


def _kinds(figure: Any, axis: Any, study: Study) -> None:
    """A bar for each kind, and a dot for each layer."""
    shown = [study.by[name] for name in ("kind", "answer", "word") if name in study.by]
    names, means, layers = [], [], []
    for own in shown:
        for n, level in enumerate(own.levels):
            if own.mean[n] is not None:
                names.append(level)
                means.append(own.mean[n])
                layers.append([layer[n] for layer in own.layers])
    axis.barh(range(len(names)), means, color=INK, alpha=0.75, height=0.65)
    axis.set_yticks(range(len(names)), names)
    if len(study.layers) > 1:
        for place, values in enumerate(layers):
            colours = _colours(len(values))
            for value, colour in zip(values, colours, strict=True):
                axis.plot(
                    value, place, "o", markersize=3.5, color=colour, markeredgecolor="white",
                    markeredgewidth=0.3,
                )  # fmt: skip
    axis.invert_yaxis()
    axis.set_xlabel("mean reach, tokens", fontsize=8)
    _plain_axis(axis)


def _distances(figure: Any, axis: Any, study: Study) -> None:
    means = study.by["distance"]
    _lines(axis, study, means, list(range(len(means.levels))))
    axis.set_xticks(range(len(means.levels)), means.levels, rotation=40, ha="right")
    axis.set_xlabel("tokens to the answer", fontsize=8)


def _positions(figure: Any, axis: Any, study: Study) -> None:
    means = study.by["position"]
    count = len(means.levels)
    _lines(axis, study, means, [100 * (place + 0.5) / count for place in range(count)])
    axis.set_xlabel("% of the text", fontsize=8)


def _lines(axis: Any, study: Study, means: Means, places: Sequence[float]) -> None:
    """Means of each layer, thin, and those of all."""

    def draw(values: Sequence[float | None], **options: Any) -> None:
        known = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
        axis.plot([x for x, _ in known], [y for _, y in known], **options)

    if len(study.layers) > 1:
        for layer, values, colour in zip(
            study.layers, means.layers, _colours(len(study.layers)), strict=True
        ):
            draw(values, linewidth=0.9, color=colour, label=f"layer {layer.number + 1}")
    draw(means.mean, linewidth=2.2, color=INK, label="all layers")
    axis.set_ylabel("mean reach, tokens", fontsize=8)
    columns = 1 + len(study.layers) // 5
    axis.legend(frameon=False, fontsize=6.5, ncols=columns)
    _plain_axis(axis)


def _colours(count: int) -> list[Any]:
    """A colour a layer, in their order."""
    from matplotlib import colormaps

    return [colormaps[LAYERS](0.92 * place / max(count - 1, 1)) for place in range(count)]


def _plain_axis(axis: Any) -> None:
    axis.grid(color="#e3e7ec", linewidth=0.7)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
