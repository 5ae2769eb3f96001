"""What a pattern adds to a window: a global token, random blocks, steps of two."""

from __future__ import annotations

from ...measure import Size
from ...patterns import Global, Pattern, Window, bigbird
from .. import peers
from ..contenders import Contender, attending
from ..floor import matmuls, times_floor
from ..problem import Problem, Results, size_of
from ..records import Figure
from .window import REACH

__all__ = ["bigbird_blocks", "dilated", "one_global"]


def one_global(quick: bool) -> Problem:
    """A global token on top of a window."""
    size = size_of(quick)

    def judge(results: Results) -> list[Figure]:
        took = results.ratio("with a global token", "window")
        more = [None if ratio is None else 100 * (ratio - 1) for ratio in took]
        return [results.figure("one global token added", "% more", (more[0], more[1]), (10, 10))]

    return Problem(
        name="global",
        title="a global token beside a window of 128",
        ours=(
            Contender(name="window", size=size, make=attending(Window(REACH, REACH))),
            Contender(
                name="with a global token",
                size=size,
                make=attending(Window(REACH, REACH) | Global(1)),
            ),
        ),
        judge=judge,
    )


def bigbird_blocks(quick: bool) -> Problem:
    """Blocks of 64, three of them random, against Hugging Face."""
    # Hugging Face draws only from the first 1,024 tokens, so fewer would not do.
    size = Size(heads=2, length=1024) if quick else size_of(quick)
    plain, dense = "Hugging Face", "Hugging Face, with its dense map"

    def pattern(size: Size) -> Pattern:
        return bigbird(size.length, block=64, drawn=3)

    def judge(results: Results) -> list[Figure]:
        rate, pairs = results.rate(), results["longspan"].pairs
        floors = [
            results.figure(
                f"  {name}",
                "× floor",
                times_floor(results[name], size.head_dim, rate, pairs=pairs),
                note="as many pairs",
                of=[name],
            )
            for name in ("longspan", plain)
        ]
        return [
            results.figure(
                "BigBird, block 64, 3 random, against Hugging Face",
                "× faster",
                results.ratio(plain, "longspan"),
                (4.0, 4.0),
                at_least=True,
                note="without the dense map that it always returns",
                of=[plain],
            ),
            results.figure(
                "  as shipped, dense map and all",
                "× faster",
                results.ratio(dense, "longspan"),
                of=[dense],
            ),
            *floors,
        ]

    return Problem(
        name="bigbird",
        title="BigBird's pattern",
        ours=(Contender(name="longspan", size=size, make=attending(pattern)),),
        peers=(
            Contender(name=plain, size=size, make=peers.hugging_face_bigbird()),
            Contender(name=dense, size=size, make=peers.hugging_face_bigbird(dense_map=True)),
            *matmuls(quick=quick),
        ),
        judge=judge,
    )


def dilated(quick: bool) -> Problem:
    """Every second token, as many of them, against all tokens."""
    size = size_of(quick)

    def judge(results: Results) -> list[Figure]:
        # The dilated window loses more pairs at both ends of the text.
        exact = results["window"].pairs / results["dilated"].pairs
        took = [r and r * exact for r in results.ratio("dilated", "window")]
        return [
            results.figure(
                "dilated window (2) against undilated, as many pairs",
                "× the time",
                (took[0], took[1]),
                (1.3, 1.3),
            )
        ]

    return Problem(
        name="dilated",
        title="a window of 128 steps of two",
        ours=(
            Contender(name="window", size=size, make=attending(Window(REACH, REACH))),
            Contender(name="dilated", size=size, make=attending(Window(REACH, REACH, 2))),
        ),
        judge=judge,
    )
