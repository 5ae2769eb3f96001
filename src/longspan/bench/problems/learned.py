"""A learned reach, with its bell and its gradients, against fixed windows of the same cost."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...functional import explain
from ...measure import Size
from ...patterns import Window
from ...weights import Bell, variance_of
from ..contenders import Contender, Work, attending
from ..problem import Problem, Results, size_of
from ..reaches import KINDS, Kind, reaches
from ..records import Figure

__all__ = ["bell", "learned", "window_with_pairs", "window_with_tiles"]

TILE = 64


def bell(kind: Kind) -> Callable[[Size], Bell]:
    """A bell whose reach at threshold 0.5 is of a kind; its variance learns."""

    def make(size: Size) -> Bell:
        reach = reaches(kind, size.heads, size.length)
        variance: Tensor = variance_of(reach, 0.5)
        return Bell(variance.requires_grad_(), threshold=0.5)

    return make


def window_with_tiles(tiles: int, size: Size) -> Window:
    """The window whose number of tiles comes nearest.

    Its sides are whole tiles: the widest of all windows with as many, and without half-empty tiles
    of its own.
    """
    q, k, v = size.inputs()
    best, least = Window(0, 0), tiles
    for steps in range(2 * -(-size.length // TILE)):
        window = Window(steps // 2 * TILE, (steps + 1) // 2 * TILE)
        off = abs(explain(q, k, v, window).tiles - tiles)
        if off > least:
            break
        if off < least:
            best, least = window, off
    return best


def window_with_pairs(pairs: int, size: Size) -> Window:
    """The window, as far on both sides, whose number of pairs comes nearest."""
    n, each = size.length, pairs / (size.batch * size.heads)
    reach = min(range(n), key=lambda w: abs(n * (2 * w + 1) - w * (w + 1) - each))
    return Window(reach, reach)


def learned(quick: bool) -> Problem:
    """All three kinds, each against a window with as many tiles and one with as many pairs."""
    size = size_of(quick)

    def judge(results: Results) -> list[Figure]:
        figures = []
        for kind in KINDS:
            ours = results[f"{kind}: learned"]
            for other, targets in (("tiles", (1.3, 1.3)), ("pairs", (None, None))):
                fixed = results[f"{kind}: window, as many {other}"]
                # No window has exactly as many: what is left is taken out in proportion.
                exact = getattr(fixed, other) / getattr(ours, other)
                took = results.ratio(ours.name, fixed.name)
                figures.append(
                    results.figure(
                        f"learned reach, {kind}, against a window of as many {other}",
                        "× the time",
                        (_times(took[0], exact), _times(took[1], exact)),
                        targets,
                        note=f"{ours.pairs / (ours.tiles * TILE * TILE):.0%} of tiles filled; "
                        f"{other} of the window ×{exact:.2f}",
                    )
                )
        return figures

    def fixed(kind: Kind, choose: Callable[[Work, Size], Window]) -> Callable[[Size], Work]:
        def make(size: Size) -> Work:
            told = attending(weight=bell(kind))(size)
            return attending(choose(told, size))(size)

        return make

    ours, peers = [], []
    for kind in KINDS:
        ours.append(
            Contender(
                name=f"{kind}: learned", size=size, make=attending(weight=bell(kind)), group=kind
            )
        )
        for other, choose in (
            ("tiles", lambda told, size: window_with_tiles(told.tiles, size)),
            ("pairs", lambda told, size: window_with_pairs(told.pairs, size)),
        ):
            peers.append(
                Contender(
                    name=f"{kind}: window, as many {other}",
                    size=size,
                    make=fixed(kind, choose),
                    group=kind,
                )
            )
    return Problem(
        name="learned",
        title="a learned reach with its bell and gradients",
        ours=tuple(ours),
        peers=tuple(peers),
        judge=judge,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
