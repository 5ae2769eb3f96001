"""Pictures of masks: blocks of text for a terminal, PNG or SVG with matplotlib."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["draw_text", "import_pyplot", "save_figure", "save_picture"]

INK = "#1f4e79"
SHADES = " ░▒▓█"


def draw_text(mask: Tensor, *, width: int = 64) -> str:
    """Draws a mask `(B|1, H|1, n, m)` for a terminal; two characters a pair, or shades when it is wide."""
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


def _name_of(b: int, h: int, samples: int, heads: int) -> str:
    names = [f"sample {b}"] if samples > 1 else []
    names += [f"head {h}"] if heads > 1 else []
    return ", ".join(names)


def import_pyplot() -> Any:
    """matplotlib's pyplot, without a display; says what to install when it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib: pip install 'longspan[report]' (text needs nothing)"
        ) from error
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


def save_picture(mask: Tensor, path: str | Path, title: str = "") -> None:
    """Saves a mask `(B|1, H|1, n, m)` as a picture, one panel for each sample and head (16 at most)."""
    plt = import_pyplot()
    samples, heads = mask.shape[:2]
    panels = [(b, h) for b in range(samples) for h in range(heads)][:16]
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3 * columns, 3.2 * rows), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (b, h) in zip(axes.flat, panels, strict=False):
        draw_mask(axis, mask[b, h], _name_of(b, h, samples, heads))
    if title:
        figure.suptitle(title, fontsize=9)
    save_figure(figure, path)
    plt.close(figure)


def draw_mask(axis: Any, mask: Tensor, title: str = "") -> None:
    """Draws one mask `(n, m)` on a matplotlib axis: queries down, keys across."""
    from matplotlib.colors import ListedColormap

    n, m = mask.shape
    axis.set_axis_on()
    axis.imshow(mask.cpu().numpy(), cmap=ListedColormap(["#f2f4f7", INK]), vmin=0, vmax=1)
    if max(n, m) <= 64:
        axis.set_xticks([x - 0.5 for x in range(m + 1)], minor=True)
        axis.set_yticks([y - 0.5 for y in range(n + 1)], minor=True)
        axis.grid(which="minor", color="white", linewidth=0.6)
    axis.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(title, fontsize=9)


def save_figure(figure: Any, path: str | Path) -> None:
    """Writes a figure to the side and renames it, so that a broken write leaves no half picture."""
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise ValueError(f"path must end in .png or .svg, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
    os.close(handle)
    try:
        figure.savefig(aside, dpi=120, bbox_inches="tight")
        Path(aside).chmod(0o644)
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
