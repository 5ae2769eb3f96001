"""The colours of the page: text can be read in light and in dark."""

from __future__ import annotations

import re
from importlib import resources

import pytest

CSS = resources.files("longspan.report").joinpath("page.css").read_text(encoding="utf-8")
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    """As WCAG 2 defines it: 4.5 is asked of text, 21 is black on white."""
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_right() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "behind"),
    [(text, paper) for text in ("ink", "soft", "link") for paper in ("paper", "card")]
    # Names of setups are written in their colours; tokens on the strongest of theirs.
    + [(f"c{place}", "card") for place in range(8)]
    + [("ink", "reach"), ("ink", "seen"), ("ink", "warn"), ("paper", "ink")],
)
def test_text_can_be_read(text: str, behind: str, dark: bool) -> None:
    assert contrast(COLOURS[text][dark], COLOURS[behind][dark]) >= 4.5


def test_every_colour_that_is_used_is_there() -> None:
    used = set(re.findall(r"var\(--([\w-]+)[,)]", CSS)) - {"own", "t"}
    assert used <= COLOURS.keys()
