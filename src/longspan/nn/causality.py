"""What a pattern's structure tells a decoder: whether it looks ahead, and how far back it goes."""

from __future__ import annotations

from ..patterns import AllOf, AnyOf, BlockWindow, Causal, Pattern, PerHead, Window

__all__ = ["is_causal", "keys_remembered"]


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


def keys_remembered(pattern: Pattern) -> int | None:
    """How many of the last keys a query can reach, itself among them; None for all of them, or
    where the pattern may look ahead.
    """
    return _back(pattern) if is_causal(pattern) else None


def _back(pattern: Pattern) -> int | None:
    """No query reaches this many keys back or more, counted from itself at 0; None: no bound."""
    if isinstance(pattern, Window):
        return None if pattern.left is None else pattern.left * pattern.dilation + 1
    if isinstance(pattern, BlockWindow):
        return (pattern.left + 1) * pattern.block
    if isinstance(pattern, AllOf):
        bounds = [bound for bound in map(_back, pattern.patterns) if bound is not None]
        return min(bounds, default=None)
    if isinstance(pattern, (AnyOf, PerHead)):
        bounds = [bound for bound in map(_back, pattern.patterns) if bound is not None]
        return max(bounds) if len(bounds) == len(pattern.patterns) else None
    return None
