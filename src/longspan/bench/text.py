"""Figures in plain words, for tables of all kinds."""

from __future__ import annotations

from .records import Figure

__all__ = ["number", "target"]


def number(value: float | None, unit: str) -> str:
    """A number with as many digits as it deserves."""
    if value is None:
        return "—"
    if unit == "tokens":
        return f"{value:.0f}"
    return f"{value:.1f}" if unit.startswith("%") or value >= 10 else f"{value:.2f}"


def target(figure: Figure) -> str:
    """What is asked of a figure."""
    asked = [f"{limit:g}" for limit in figure.targets if limit is not None]
    if not asked:
        return ""
    return ("≥ " if figure.at_least else "≤ ") + " / ".join(dict.fromkeys(asked))
