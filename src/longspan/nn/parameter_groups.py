"""Learning rates: what decides the reach often wants a larger one than the rest."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import need_number
from .learned_window import LearnedWindow

__all__ = ["parameter_groups"]


def parameter_groups(
    model: nn.Module, lr: float, *, reach_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Groups for an optimiser: the networks of learned windows, and everything else.

    Parameters that do not require a gradient are left out, so that a frozen reach has no group.

    Args:
        lr: learning rate of everything else.
        reach_factor: that of the reach networks is so many times as large (the reports tried 10 and
            100). Of a model without learned windows it is refused.

    Returns:
        Dicts with `params`, `lr` and `name` (`"rest"`, `"reach"`), none of them empty.
    """
    need_number("parameter_groups: lr", lr)
    need_number("parameter_groups: reach_factor", reach_factor)
    windows = [part for part in model.modules() if isinstance(part, LearnedWindow)]
    if reach_factor != 1 and not windows:
        raise ValueError(
            "parameter_groups: reach_factor is of learned windows, and the model has none: put "
            "them into it first, or leave reach_factor out"
        )
    reach = {id(p): p for window in windows for p in window.network.values() if p.requires_grad}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in reach]
    groups = [
        {"params": rest, "lr": lr, "name": "rest"},
        {"params": list(reach.values()), "lr": lr * reach_factor, "name": "reach"},
    ]
    return [group for group in groups if group["params"]]
