"""What a pattern's structure tells a decoder: whether it looks ahead, and how far back it goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..functional.reach import integer_reach
from ..patterns import AllOf, AnyOf, Causal, Full, Pattern, PerHead, Strided, Window
from ..weights import Bell, Ramp, Weight

__all__ = ["by_distance", "is_causal", "keys_remembered"]


def is_causal(pattern: Pattern) -> bool:
    """Whether the structure shows that no query looks ahead. False where only values could tell."""
    if isinstance(pattern, Causal):
        return True
    if isinstance(pattern, Window):
        return pattern.right == 0
    if isinstance(pattern, AllOf):
        return any(is_causal(part) for part in pattern.patterns)
    if isinstance(pattern, (AnyOf, PerHead)):
        return all(is_causal(part) for part in pattern.patterns)
    return False


def keys_remembered(pattern: Pattern, weights: Sequence[Weight] = ()) -> int | None:
    """How many of the last keys a query can reach, itself among them; None for all of them, or
    where the pattern may look ahead. A pattern that speaks of places in the text, and not of
    distances alone, needs all of them to know where it is. Weights bound it by a reach that is a
    number; one in a tensor may change.
    """
    if not is_causal(pattern) or not by_distance(pattern):
        return None
    bounds = [_back(pattern), *map(_within_reach, weights)]
    return min((bound for bound in bounds if bound is not None), default=None)


def by_distance(pattern: Pattern) -> bool:
    """Whether the structure shows that only distances count, wherever in a text the pair is."""
    if isinstance(pattern, (AllOf, AnyOf, PerHead)):
        return all(by_distance(part) for part in pattern.patterns)
    return isinstance(pattern, (Causal, Full, Strided, Window))


def _back(pattern: Pattern) -> int | None:
    """No query reaches this many keys back or more, counted from itself at 0; None: no bound."""
    if isinstance(pattern, Window):
        return None if pattern.left is None else pattern.left * pattern.dilation + 1
    if isinstance(pattern, AllOf):
        bounds = [bound for bound in map(_back, pattern.patterns) if bound is not None]
        return min(bounds, default=None)
    if isinstance(pattern, (AnyOf, PerHead)):
        bounds = [bound for bound in map(_back, pattern.patterns) if bound is not None]
        return max(bounds) if len(bounds) == len(pattern.patterns) else None
    return None


def _within_reach(weight: Weight) -> int | None:
    """As `_back`, of what a weight leaves."""
    if weight.exempt is not None or not isinstance(weight, (Bell, Ramp)):
        return None
    if isinstance(weight, Bell) and isinstance(weight.variance, Tensor):
        return None if weight.max_reach is None else weight.max_reach + 1
    if isinstance(weight, Ramp) and isinstance(weight.span, Tensor):
        return None
    reach = integer_reach(weight, torch.device("cpu"))
    # A query that sees nothing has a key of its own all the same.
    return None if reach is None else max(int(reach), 0) + 1
