"""A fixed window: against the floor, against peers, on two threads, and for other head sizes."""

from __future__ import annotations

from ...measure import Size
from ...patterns import Window
from .. import peers
from ..contenders import Contender, Unavailable, Work, attending
from ..floor import matmuls, times_floor
from ..machine import processors
from ..problem import Problem, Results, size_of
from ..records import Figure

__all__ = ["REACH", "head_dims", "threads", "window"]

REACH = 128
PEERS = ("local-attention", "Longformer", "SDPA, dense", "Performer")

# These compute something else, for longer: by themselves they leave the others more rounds.
APART = ("SDPA, dense", "Performer")


def window(quick: bool) -> Problem:
    """Against the floor and against everyone."""
    size = size_of(quick)
    makes = (
        peers.local_attention(REACH),
        peers.hugging_face_longformer(REACH),
        peers.sdpa,
        peers.performer,
    )

    def judge(results: Results) -> list[Figure]:
        rate, pairs = results.rate(), results["longspan"].pairs
        figures = [
            results.figure(
                "window 128",
                "× floor",
                times_floor(results["longspan"], size.head_dim, rate),
                (1.4, 1.3),
                note=f"floor: {rate / 1e9:.0f} GFLOP/s",
            )
        ]
        asked = {"local-attention": (2.8, 2.3), "Longformer": (3.8, 4.0)}
        for name in asked:
            figures.append(
                results.figure(
                    f"window 128 against {name}",
                    "× faster",
                    results.ratio(name, "longspan"),
                    asked[name],
                    at_least=True,
                    of=[name],
                )
            )
        notes = {"Performer": "approximates all pairs", "SDPA, dense": "computes all pairs"}
        for name in PEERS:
            took = times_floor(results[name], size.head_dim, rate, pairs=pairs)
            note = notes.get(name, "the same pairs")
            figures.append(results.figure(f"  {name}", "× floor", took, note=note, of=[name]))
        return figures

    return Problem(
        name="window",
        title="a window of 128 each side",
        ours=(Contender(name="longspan", size=size, make=attending(Window(REACH, REACH))),),
        peers=(
            *(
                Contender(name=name, size=size, make=make, group="apart" * (name in APART))
                for name, make in zip(PEERS, makes, strict=True)
            ),
            *matmuls(quick=quick),
        ),
        judge=judge,
    )


def threads(quick: bool) -> Problem:
    """Two threads against one, by the clock on the wall."""
    size = size_of(quick)
    ours = attending(Window(REACH, REACH))

    def two(size: Size) -> Work:
        if processors() < 2:
            raise Unavailable(f"needs two processors, has {processors()}")
        return ours(size)

    one_each, two_each = (matmuls(quick=quick, threads=count)[1] for count in (1, 2))

    def judge(results: Results) -> list[Figure]:
        return [
            results.figure(
                "window 128, two threads against one",
                "× faster",
                results.ratio("1 thread", "2 threads"),
                (1.8, 1.8),
                at_least=True,
                note="wall time",
                of=["2 threads"],
            ),
            results.figure(
                "  a large matrix product",
                "× faster",
                results.ratio(one_each.name, two_each.name),
                note="what two threads have to give here",
            ),
        ]

    return Problem(
        name="threads",
        title="a window of 128 on two threads",
        ours=(
            Contender(name="1 thread", size=size, make=ours, threads=1),
            Contender(name="2 threads", size=size, make=two, threads=2),
        ),
        peers=(one_each, two_each),
        judge=judge,
        wall=True,
    )


def head_dims(quick: bool) -> Problem:
    """Head sizes other than 64."""
    dims = (32, 80, 128)

    def judge(results: Results) -> list[Figure]:
        return [
            results.figure(
                f"window 128, D = {dim}",
                "× floor",
                times_floor(results[f"longspan, D={dim}"], dim, results.rate(f"D={dim}")),
                (1.6, 1.5),
            )
            for dim in dims
        ]

    return Problem(
        name="head-dims",
        title="a window of 128, other head sizes",
        ours=tuple(
            Contender(
                name=f"longspan, D={dim}",
                size=size_of(quick, head_dim=dim),
                make=attending(Window(REACH, REACH)),
                group=f"D={dim}",
            )
            for dim in dims
        ),
        peers=tuple(one for dim in dims for one in matmuls(quick=quick, group=f"D={dim}")),
        judge=judge,
    )
