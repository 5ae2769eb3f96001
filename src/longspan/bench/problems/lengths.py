"""Time against length: does a pair cost the same everywhere, and from where on does sparse pay."""

from __future__ import annotations

from ...measure import Size
from ...patterns import Window
from .. import peers
from ..contenders import Contender, attending
from ..curves import crossover, curve
from ..problem import Problem, Results, size_of
from ..records import Figure
from .window import REACH

__all__ = ["cost_per_pair", "lengths"]


def cost_per_pair(quick: bool) -> Problem:
    """Long inputs against short ones, at a fixed window."""
    sizes = [size_of(quick, length=n) for n in (4096, 16384, 65536)]

    def judge(results: Results) -> list[Figure]:
        spread: list[float | None] = []
        for which in ("forward", "both"):
            costs = []
            for outcome in results.outcomes.values():
                costs.append(getattr(outcome, which).median / outcome.pairs)
            spread.append(100 * (max(costs) / min(costs) - 1))
        return [
            results.figure(
                f"cost per pair, N = {sizes[0].length:,} to {sizes[-1].length:,}",
                "% apart",
                (spread[0], spread[1]),
                (15, 15),
            )
        ]

    return Problem(
        name="cost-per-pair",
        title="a window of 128 at growing lengths",
        ours=tuple(
            Contender(name=f"N={s.length}", size=s, make=attending(Window(REACH, REACH)))
            for s in sizes
        ),
        judge=judge,
    )


# The most tokens at which a peer is timed: more would take minutes, or most of the memory.
PEERS = {
    "SDPA, dense": (peers.sdpa, 8192),
    "local-attention": (peers.local_attention(REACH), 16384),
    "Longformer": (peers.hugging_face_longformer(REACH), 16384),
}


def lengths(quick: bool) -> Problem:
    """The plot: from inputs too short for anything but dense attention to long ones."""
    longest = 1024 if quick else 16384
    ns = [n for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384) if n <= longest]
    sizes = [Size(heads=2 if quick else 12, length=n) for n in ns]

    def judge(results: Results) -> list[Figure]:
        outcomes = results.outcomes.values()
        found: list[float | None] = []
        for which in ("forward", "both"):
            ours, dense = (curve(outcomes, name, which) for name in ("longspan", "SDPA, dense"))
            found.append(crossover(ours, dense))
        return [
            results.figure(
                "window 128 is faster than dense SDPA from",
                "tokens",
                (found[0], found[1]),
                note=f"measured from {ns[0]} tokens on; a window of 128 is all there is up to 129",
            )
        ]

    # Longformer's inputs are multiples of twice its reach.
    others = [
        Contender(name=f"{name}, N={s.length}", size=s, make=make, group=f"N={s.length}")
        for s in sizes
        for name, (make, most) in PEERS.items()
        if s.length <= most and (name == "SDPA, dense" or s.length >= 2 * REACH)
    ]
    return Problem(
        name="lengths",
        title="time against length",
        ours=tuple(
            Contender(
                name=f"longspan, N={s.length}",
                size=s,
                make=attending(Window(REACH, REACH)),
                group=f"N={s.length}",
            )
            for s in sizes
        ),
        peers=tuple(others),
        judge=judge,
    )
