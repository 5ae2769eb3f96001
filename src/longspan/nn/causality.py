"""What a pattern's structure tells a decoder: whether it looks ahead, and how far back it goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..functional.reach import integer_reach
from ..patterns import (
    AllOf,
    AnyOf,
    Causal,
    Full,
    Global,
    Pattern,
    PerHead,
    Random,
    Strided,
    Window,
)
from ..weights import Bell, Ramp, Weight

__all__ = ["by_distance", "is_causal", "keys_remembered"]


def is_causal(pattern: Pattern) -> bool:
    """Whether the structure shows that no query looks ahead. False where only values could tell,
    and where pairs of tokens that are there already change with every token that comes.
    """
    return not _follows_length(pattern) and _looks_back(pattern)


def _looks_back(pattern: Pattern) -> bool:
    if _is(pattern, Causal):
        return True
    if isinstance(pattern, Window) and _is(pattern, Window):
        return pattern.right == 0
    if isinstance(pattern, AllOf):
        return any(_looks_back(part) for part in pattern.patterns)
    if isinstance(pattern, (AnyOf, PerHead)):
        return all(_looks_back(part) for part in pattern.patterns)
    return False


def _is(pattern: Pattern, *kinds: type[Pattern]) -> bool:
    """Whether a pattern is one of these: a subclass may have pairs of its own."""
    own = type(pattern).contains
    return any(isinstance(pattern, kind) and own is kind.contains for kind in kinds)


def _follows_length(pattern: Pattern) -> bool:
    """Whether pairs depend on how many tokens there are: of the last tokens, or drawn for them."""
    if isinstance(pattern, Random):
        return pattern.length is None and pattern.table is None
    if isinstance(pattern, Global):
        named = (pattern.tokens, pattern.queries, pattern.keys)
        return any(isinstance(own, int) and own < 0 for own in named)
    return any(map(_follows_length, pattern.children()))


def keys_remembered(pattern: Pattern, weights: Sequence[Weight] = ()) -> int | None:
    """How many of the last keys a query can reach, itself among them; None for all of them, or
    where the pattern may look ahead. A pattern that speaks of places in the text, and not of
    distances alone, needs all of them to know where it is. Weights bound it by a reach that is a
    number; one in a tensor may change.
    """
    exempt = [weight.exempt for weight in weights if weight.exempt is not None]
    if not is_causal(pattern) or not all(map(by_distance, (pattern, *exempt))):
        return None
    bounds = [_back(pattern), *map(_within_reach, weights)]
    return min((bound for bound in bounds if bound is not None), default=None)


def by_distance(pattern: Pattern) -> bool:
    """Whether the structure shows that only distances count, wherever in a text the pair is."""
    if isinstance(pattern, (AllOf, AnyOf, PerHead)):
        return all(by_distance(part) for part in pattern.patterns)
    return _is(pattern, Causal, Full, Strided, Window)


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
