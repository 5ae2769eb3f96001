"""How much memory a training step takes beyond what it has to give back."""

from __future__ import annotations

from ...measure import Size
from ...patterns import Window
from .. import peers
from ..contenders import Contender, attending
from ..problem import Problem, Results, size_of
from ..records import Figure
from .window import REACH

__all__ = ["least_bytes", "memory"]


def least_bytes(size: Size) -> int:
    """The output, three gradients, and a log-sum-exp for every row, in float32."""
    rows = size.batch * size.heads * size.length
    return 4 * rows * (4 * size.head_dim + 1)


def memory(quick: bool) -> Problem:
    """Peak memory of forward and backward, each in its turn in a fresh process."""
    size = size_of(quick, length=16384)
    makes = {
        "local-attention": peers.local_attention(REACH),
        "Longformer": peers.hugging_face_longformer(REACH),
    }

    def judge(results: Results) -> list[Figure]:
        figures = []
        for name in ("longspan", *makes):
            peak = results[name].peak
            ours = name == "longspan"
            figures.append(
                results.figure(
                    f"peak memory, window 128, N = {size.length:,}" if ours else f"  {name}",
                    "× least",
                    (None, None if peak is None else peak / least_bytes(size)),
                    (None, 1.25 if ours else None),
                    note="" if peak is None else f"{peak / 2**20:.0f} MiB",
                    of=[name],
                )
            )
        return figures

    return Problem(
        name="memory",
        title="peak memory of a window of 128",
        ours=(Contender(name="longspan", size=size, make=attending(Window(REACH, REACH))),),
        peers=tuple(Contender(name=name, size=size, make=make) for name, make in makes.items()),
        judge=judge,
        memory=True,
    )
