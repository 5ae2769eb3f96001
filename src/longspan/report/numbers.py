"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["compact", "duration", "memory", "plain", "with_spread"]

MISSING = "–"


def plain(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, and thousands set apart."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(0, digits - 1 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_spread(mean: float | None, deviation: float | None) -> str:
    """A mean and its deviation, both to the deviation's second digit; the mean alone to four."""
    if mean is None:
        return MISSING
    if deviation is None or not deviation:
        text = plain(mean, 4)
        return text if deviation is None else f"{text} ± 0"
    places = min(6, max(0, 1 - math.floor(math.log10(deviation))))
    return f"{mean:,.{places}f} ± {deviation:,.{places}f}"


def compact(value: float | None) -> str:
    """A large number in thousands (k), millions (M), billions (G) or more (T)."""
    if value is None or not math.isfinite(value) or abs(value) < 1e3:
        return plain(value)
    for power, unit in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        # 999,600 is 1 M to three digits, and not 1,000 k.
        if abs(value) >= 0.9995 * 10**power:
            return f"{plain(value / 10**power)} {unit}"
    return plain(value)


def memory(value: float | None) -> str:
    """Bytes, in the unit that keeps them below a thousand or so."""
    if value is None or not math.isfinite(value):
        return plain(value)
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(value) >= 2**power:
            return f"{plain(value / 2**power)} {unit}"
    return f"{plain(value)} B"


def duration(value: float | None) -> str:
    """Seconds, as hours and minutes where there are such."""
    if value is None or not math.isfinite(value):
        return plain(value)
    if value < 59.95:
        return f"{plain(value)} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
