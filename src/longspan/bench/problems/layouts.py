"""What it costs to compile a layout, beside the attention that it serves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch

from ...functional.reach import cut_of
from ...layout import Layout, compile_layout
from ...measure import Size
from ...patterns import Full, Pattern, Window, bigbird, longformer
from ..contenders import Contender, Work, attending
from ..problem import Problem, Results, size_of
from ..reaches import KINDS, Kind
from ..records import Figure
from .learned import bell
from .window import REACH

__all__ = ["compiling"]

CPU = torch.device("cpu")

# A static layout is kept, the last 256 of them: as many lengths in turn, and none is found again.
LENGTHS = 300

REPEATS = 5

PATTERNS: dict[str, Callable[[Size], Pattern]] = {
    "window": lambda size: Window(REACH, REACH),
    "Longformer": lambda size: longformer(REACH),
    "BigBird": lambda size: bigbird(size.length, block=64, drawn=3),
}


def _static(make: Callable[[Size], Pattern]) -> Callable[[Size], Work]:
    """Compiles a static pattern for the first time, at lengths that differ by a few tokens."""

    def work(size: Size) -> Work:
        pattern, turn = make(size), count()

        def once() -> Layout:
            n = size.length - next(turn) % LENGTHS
            return compile_layout(pattern, (), n, n, CPU, merge=True)

        return Work(forward=lambda: [once() for _ in range(REPEATS)], repeats=REPEATS)

    return work


def _learned(kind: Kind) -> Callable[[Size], Work]:
    """From a variance to a layout, as in every call."""

    def work(size: Size) -> Work:
        weight, n = bell(kind)(size), size.length

        def once() -> Layout:
            return compile_layout(Full(), (cut_of(weight, n, CPU),), n, n, CPU, merge=True)

        return Work(forward=lambda: [once() for _ in range(REPEATS)], repeats=REPEATS)

    return work


def compiling(quick: bool) -> Problem:
    """Static patterns, once; learned reaches, in every pass."""
    size = size_of(quick)

    def judge(results: Results) -> list[Figure]:
        figures = []
        for name in (*PATTERNS, *KINDS):
            outcomes = [results[name], results[f"compile {name}"]]
            attended, compiled = outcomes
            assert attended.forward is not None and attended.both is not None
            assert compiled.forward is not None
            # A reach that learns is compiled anew in the backward pass; a static layout is kept.
            passes = 1 if name in PATTERNS else 2
            once = 100 * compiled.forward.median
            figures.append(
                results.figure(
                    f"compile {name}" + (", the first time" if passes == 1 else " reaches"),
                    "% of attention",
                    (once / attended.forward.median, passes * once / attended.both.median),
                    (None, 2.0),
                    note="once, kept" if passes == 1 else "every pass",
                )
            )
        return figures

    ours = []
    for name, make in PATTERNS.items():
        ours += [
            Contender(name=name, size=size, make=attending(make), group=name),
            Contender(
                name=f"compile {name}", size=size, make=_static(make), group=name, both=False
            ),
        ]
    for kind in KINDS:
        ours += [
            Contender(name=kind, size=size, make=attending(weight=bell(kind)), group=kind),
            Contender(
                name=f"compile {kind}", size=size, make=_learned(kind), group=kind, both=False
            ),
        ]
    return Problem(
        name="compile",
        title="compiling a layout",
        ours=tuple(ours),
        judge=judge,
    )
