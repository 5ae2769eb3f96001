"""Pictures of masks: blocks of text for a terminal, PNG or SVG with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..writing import whole_file

__all__ = [
    "INK",
    "check_suffix",
    "draw_compact",
    "draw_panel",
    "draw_text",
    "figure_of",
    "new_figure",
    "save_figure",
    "save_picture",
    "svg_of",
]

INK = "#1f4e79"
PAPER = "#f0f2f5"
HEADS = (INK, "#d9822b", "#3f8f5f", "#7d4f9e")
SHADES = " ░▒▓█"
HALVES = " ▀▄█"
LEVELS = 5
MOST_CELLS = 64


def draw_text(mask: Tensor, *, width: int = 64) -> str:
    """Draws a mask `(B|1, H|1, n, m)` for a terminal: two characters a pair, or shades if wide."""
    pictures = []
    samples, heads = mask.shape[:2]
    for b in range(samples):
        for h in range(heads):
            name = _name_of(b, h, samples, heads)
            body = _draw_one(mask[b, h].cpu(), width)
            pictures.append(f"{name}\n{body}" if name else body)
    return "\n\n".join(pictures)


def _draw_one(mask: Tensor, width: int) -> str:
    n, m = mask.shape
    if m <= width // 2:
        return "\n".join(" ".join("■" if x else "·" for x in row) for row in mask.tolist())
    shrink = -(-m // width)
    padded = F.pad(mask.float(), (0, -m % shrink, 0, -n % (2 * shrink)))
    share = F.avg_pool2d(padded[None, None], (2 * shrink, shrink))[0, 0]
    level = torch.where(share > 0, 1 + (share * 3.999).floor(), 0).long()
    return "\n".join("".join(SHADES[x] for x in row) for row in level.tolist())


def draw_compact(mask: Tensor) -> str:
    """Draws one mask `(n, m)` small: a character is one key wide and two queries high."""
    even = F.pad(mask.cpu().long(), (0, 0, 0, mask.shape[0] % 2))
    both = even[0::2] + 2 * even[1::2]
    return "\n".join("".join(HALVES[x] for x in row) for row in both.tolist())


def _name_of(b: int, h: int, samples: int, heads: int) -> str:
    names = [f"sample {b}"] if samples > 1 else []
    names += [f"head {h}"] if heads > 1 else []
    return ", ".join(names)


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of so many inches; leaves pyplot's state alone."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib: pip install 'longspan[report]' (text needs nothing)"
        ) from error
    return Figure(figsize=(width, height), facecolor="white")


def save_picture(mask: Tensor, path: str | Path, title: str = "") -> None:
    """Saves a mask `(B|1, H|1, n, m)` as a picture, a panel a sample and head (16 at most)."""
    check_suffix(path)
    save_figure(figure_of(mask, title), path)


def figure_of(mask: Tensor, title: str = "") -> Any:
    """That picture, as a figure of matplotlib."""
    samples, heads = mask.shape[:2]
    panels = [(b, h) for b in range(samples) for h in range(heads)][:16]
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(3 * columns, 3.2 * rows)
    figure.set_layout_engine("constrained")
    for place, (b, h) in enumerate(panels):
        axis = figure.add_subplot(rows, columns, place + 1)
        draw_panel(axis, mask[b, h][None])
        axis.set_title(_name_of(b, h, samples, heads), fontsize=9)
    if title:
        figure.suptitle(title, fontsize=9, wrap=True)
    return figure


def draw_panel(axis: Any, values: Tensor) -> None:
    """Draws values `(H, n, m)` in [0, 1] on a matplotlib axis, a colour a head.

    Queries go down, keys across.
    """
    heads, n, m = values.shape
    axis.set(xlim=(0, m), ylim=(n, 0), aspect="equal", facecolor=PAPER)
    axis.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    if max(n, m) > MOST_CELLS:
        shown = values.float().amax(0).cpu().numpy()
        axis.imshow(shown, cmap="Blues", vmin=0, vmax=1, extent=(0, m, n, 0))
        return
    if heads > 1:
        for head, colour in zip(values, HEADS, strict=False):
            _fill(axis, head > 0, colour, 0.8)
    else:
        level = (values[0].float() * LEVELS).ceil()
        for step in range(1, LEVELS + 1):
            _fill(axis, level == step, INK, step / LEVELS)
    _rule(axis, n, m)


def _fill(axis: Any, cells: Tensor, colour: str, alpha: float) -> None:
    """Fills cells `(n, m)` as one path of few rectangles: sharp at any size, small in a file."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    corners: list[tuple[int, int]] = []
    for left, right, top, bottom in _rectangles(cells):
        corners += [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    if corners:
        codes = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY] * (len(corners) // 5)
        outline = Outline(corners, codes)
        axis.add_patch(PathPatch(outline, facecolor=colour, alpha=alpha, linewidth=0))


def _rectangles(cells: Tensor) -> list[tuple[int, int, int, int]]:
    """Covers cells `(n, m)` with disjoint rectangles (left, right, top, bottom)."""
    edges = F.pad(cells.cpu().int(), (1, 1)).diff(dim=1)
    found: list[tuple[int, int, int, int]] = []
    growing: dict[tuple[int, int], int] = {}
    for y, row in enumerate([*edges.unbind(0), edges.new_zeros(edges.shape[1])]):
        starts, stops = ((row == side).nonzero()[:, 0].tolist() for side in (1, -1))
        runs = set(zip(starts, stops, strict=True))
        found += [(*run, growing.pop(run), y) for run in sorted(growing.keys() - runs)]
        growing |= {run: y for run in runs - growing.keys()}
    return found


def _rule(axis: Any, n: int, m: int) -> None:
    """Rules white lines between the cells, as one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    lines = [end for x in range(1, m) for end in ((x, 0), (x, n))]
    lines += [end for y in range(1, n) for end in ((0, y), (m, y))]
    if lines:
        codes = [Outline.MOVETO, Outline.LINETO] * (len(lines) // 2)
        grid = PathPatch(Outline(lines, codes), fill=False, edgecolor="white", linewidth=0.5)
        axis.add_patch(grid)


def check_suffix(path: str | Path) -> None:
    """Raises unless a picture can be saved under this name."""
    if Path(path).suffix not in (".png", ".svg"):
        raise ValueError(f"path must end in .png or .svg, got {Path(path).name!r}")


def svg_of(make: Callable[[], Any]) -> str | None:
    """A figure as a notebook shows it; None without matplotlib, and the notebook shows text."""
    try:
        from matplotlib import rc_context
    except ImportError:
        return None
    written = io.BytesIO()
    with rc_context({"svg.hashsalt": "longspan"}):
        make().savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue().decode()


def save_figure(figure: Any, path: str | Path) -> None:
    """Writes a figure, to the side first, so that a broken write leaves no half picture."""
    from matplotlib import rc_context

    check_suffix(path)
    path = Path(path)
    # Neither the day nor random ids: a picture in a repository changes only with what it shows.
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    with whole_file(path) as aside, rc_context({"svg.hashsalt": "longspan"}):
        figure.savefig(aside, dpi=144, metadata=metadata)
