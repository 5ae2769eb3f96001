"""A row in plain lines, for where there is no table."""

from __future__ import annotations

from .records import Figure, Result, Taken

__all__ = ["asked_of", "lines_of", "number", "verdict"]


def number(value: float | None, unit: str = "") -> str:
    """A number with as many digits as it deserves."""
    if value is None:
        return "—"
    if unit == "":
        return f"{value:g}"
    return f"{value:.1f}" if value >= 100 or unit == "%" else f"{value:.2f}"


def asked_of(figure: Figure) -> str:
    """A target, with its stretch."""
    if figure.target is None:
        return ""
    sign = "≥" if figure.at_least else "≤"
    more = "" if figure.stretch is None else f" ({figure.stretch:g})"
    return f"{sign} {figure.target:g}{more}"


def verdict(figure: Figure) -> str:
    """Whether a target is met, and its stretch too."""
    if figure.met is None:
        return ""
    if not figure.met:
        return "no"
    return "yes, and more" if figure.stretched else "yes"


def taken_text(taken: Taken) -> str:
    """Median, quartiles, and how they were measured."""
    if taken.how == "clock":
        return f"{taken.median / 1e6:.2f} s"
    return f"{taken.median:.1f} ({taken.lower:.1f}–{taken.upper:.1f}) µs {taken.how}"


def lines_of(result: Result, total: float | None = None) -> list[str]:
    """What a row found, and the seconds that the run has taken in all."""
    so_far = "" if total is None else f", {total:.0f} s so far"
    lines = [f"{result.row}: {result.title} [{result.seconds:.0f} s{so_far}]"]
    if result.missing:
        return [*lines, f"  missing: {result.missing}"]
    for which, need in result.needs.items():
        time = (
            ""
            if need.time is None
            else (f"; {need.bytes_time:.1f} µs and {need.flops_time:.1f} µs at the card's rates")
        )
        lines.append(
            f"  {which} needs {need.bytes / 1e6:.1f} MB, {need.flops / 1e9:.1f} Gflop{time}"
        )
    for entry in result.entries:
        passes = [f"{name} {taken_text(taken)}" for name, taken in entry.passes.items()]
        said = [*passes, entry.missing and f"missing: {entry.missing}", entry.note]
        lines.append(f"  {entry.name}: " + "; ".join(filter(None, said)))
    for figure in result.figures:
        asked = " ".join(filter(None, [asked_of(figure), verdict(figure)]))
        value = f"{number(figure.value, figure.unit)} {figure.unit}".strip()
        said = [value, asked, figure.note]
        lines.append(f"  → {figure.what}: " + "; ".join(filter(None, said)))
    return lines
