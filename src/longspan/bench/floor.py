"""The least time that attention can take: its matrix products, at the best rate of `torch.matmul`.

Forward, a pair costs the products q·k and p·v: 2·D multiplications and additions each, 4·D flops.
Backward recomputes q·k, and has p·g and g·v for the values, and two products for q and k: 10·D
flops more, 14·D together. Only pairs that exist are counted, not whole tiles, and none of the
exponentials.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..measure import Size
from .contenders import Contender, Work
from .records import Outcome

__all__ = ["best_rate", "flops_of", "matmuls", "times_floor"]

# Batched: the shape of scores, many queries and keys with few numbers each. A dozen at a time fit
# a cache as the scores of a fused kernel do.
BATCH, ROWS, INNER = 12, 512, 64


def flops_of(pairs: int, head_dim: int) -> tuple[int, int]:
    """Flops of the forward, and of forward and backward."""
    return 4 * head_dim * pairs, 14 * head_dim * pairs


def matmuls(
    *, quick: bool = False, group: str = "", threads: int | None = None
) -> tuple[Contender, ...]:
    """The matrix products whose rate is the floor's: they take turns with what is measured.

    Args:
        quick: small ones.
        group: of contenders, and the end of their names.
        threads: of torch, also the end of their names; None for that of the whole run.
    """
    side = 256 if quick else 2048
    suffix = f", {group}" if group else ""
    suffix += f", threads: {threads}" if threads else ""
    return (
        Contender(
            name=f"matmul {ROWS}×{INNER}×{ROWS}{suffix}",
            size=Size(length=ROWS),
            make=lambda size: _product((BATCH, ROWS, INNER), (BATCH, INNER, ROWS)),
            group=group,
            threads=threads,
            both=False,
        ),
        Contender(
            name=f"matmul {side}³{suffix}",
            size=Size(length=side),
            make=lambda size: _product((side, side), (side, side)),
            group=group,
            threads=threads,
            both=False,
        ),
    )


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> Work:
    source = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=source) for shape in (left, right))
    out = a @ b
    flops = 2 * out.numel() * left[-1]
    times = max(1, round(4e9 / flops))

    def repeat() -> None:
        for _ in range(times):
            torch.matmul(a, b, out=out)

    return Work(forward=repeat, flops=flops, repeats=times)


def best_rate(outcomes: Iterable[Outcome]) -> float:
    """Flops a second of the faster of the matrix products, by its median."""
    return max(
        outcome.flops / outcome.forward.median
        for outcome in outcomes
        if outcome.flops and outcome.forward is not None
    )


def times_floor(
    outcome: Outcome, head_dim: int, rate: float, *, pairs: int | None = None
) -> tuple[float | None, float | None]:
    """How many times the floor a contender took, forward, and forward and backward.

    Args:
        outcome: of the contender.
        head_dim: D.
        rate: flops a second.
        pairs: of a peer's problem, when the peer itself does not count them.
    """
    found = []
    counted = outcome.pairs if pairs is None else pairs
    for sample, flops in zip(
        (outcome.forward, outcome.both), flops_of(counted, head_dim), strict=True
    ):
        found.append(None if sample is None else sample.median * rate / flops)
    return found[0], found[1]
