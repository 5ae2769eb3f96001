"""Rows of a learned reach with its bell: a whole step, since a peer's mask is made anew in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ....measure import Size
from ....weights import Bell, reach_of
from ...reaches import Kind
from ..contenders import OURS, Bench, Variant, compared, ours, ratios
from ..draws import THRESHOLD, pairs_of_reach, variances
from ..floor import needs_of, step_of
from ..peers import FLEX, flex_learned
from ..records import Result
from .row import Row, size_fields

__all__ = ["bell", "learned_row"]

PASSES = ("mask", "forward", "backward", "step")


def bell(kind: Kind, size: Size, device: torch.device) -> Callable[[], Bell]:
    """A bell that learns, made anew at each call."""
    return lambda: Bell(variances(kind, size, device), threshold=THRESHOLD)


def learned_row(kind: Kind, target: tuple[float, float] | None = None) -> Row:
    """A kind of reaches, all with a mean of 84 tokens each side."""
    name, title = f"learned-{kind}", f"learned reach with its bell, {kind}"

    def run(bench: Bench) -> Result:
        size = bench.size()
        contenders: dict[str, Sequence[Variant]] = {
            OURS: ours(bench, size, weight=bell(kind, size, bench.device))
        }
        if bench.peers:
            contenders[FLEX] = flex_learned(
                bench, size, lambda: variances(kind, size, bench.device)
            )
        entries = compared(bench, contenders, PASSES)
        targets = {} if target is None else {"step": target}
        reach = reach_of(variances(kind, size, torch.device("cpu")), THRESHOLD)
        pairs = pairs_of_reach(reach)
        needs = needs_of(size, pairs, bench.card)
        return Result(
            row=name,
            title=f"{title}: mean {reach.float().mean():.0f}, longest {reach.max()}",
            size=size_fields(size),
            pairs=pairs,
            needs=needs | {"step": step_of(needs)},
            entries=entries,
            figures=ratios(entries, FLEX, targets, ("forward", "backward", "step")),
        )

    return Row(name=name, title=title, run=run, compiles=True)
