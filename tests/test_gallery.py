from __future__ import annotations

from pathlib import Path

import pytest
import torch

from longspan import patterns
from longspan.gallery import EXAMPLES, example_pattern, example_values, panels, save_gallery
from longspan.patterns import AllOf, AnyOf, Full, Global, Pattern, PerHead, Summaries
from longspan.weights import reach_of, variance_of


def kinds_in(pattern: Pattern) -> set[type]:
    return {type(pattern)}.union(*(kinds_in(child) for child in pattern.children()))


def test_every_pattern_and_preset_is_there() -> None:
    shown = set().union(*(kinds_in(example_pattern(name, 24)) for name in EXAMPLES))
    public = {getattr(patterns, name) for name in patterns.__all__}
    every = {x for x in public if isinstance(x, type) and issubclass(x, Pattern)}
    # Parts of other patterns, which nobody would draw alone.
    assert shown | {Pattern, Summaries} == every | {AllOf, AnyOf}
    presets = {name for name in patterns.__all__ if name.islower()}
    assert presets <= {expression.split("(")[0] for expression in EXAMPLES.values()}


@pytest.mark.parametrize("length", [1, 2, 16, 24, 33])
def test_every_example_fits_any_length(length: int) -> None:
    for panel in panels(length):
        heads, n, m = panel.values.shape
        assert (n, m) == (length, length), panel.name
        assert panel.values.min() >= 0 and panel.values.max() <= 1, panel.name
        assert heads == (2 if panel.name == "per-head" else 1)


def test_names_are_forgiving_and_expressions_are_not_names() -> None:
    assert example_pattern(" Full ", 8) == Full()
    assert example_pattern("per_head", 8) == example_pattern("per-head", 8)
    assert isinstance(example_pattern("per-head", 8), PerHead)
    assert example_pattern("Global(-length)", 8) == Global(-8)
    with pytest.raises(ValueError, match="there is no pattern 'wind'"):
        example_pattern("wind", 8)


def test_the_names_in_expressions_stand_for_examples() -> None:
    values = example_values(24)
    assert values["length"] == 24
    assert values["ids"].unique().tolist() == [0, 1, 2]
    # A knight moves back as it came, and never stays.
    allowed = values["allowed"][0, 0]
    assert torch.equal(allowed, allowed.T)
    assert not allowed.diagonal().any()
    assert allowed[0].nonzero().flatten().tolist() == [10, 17]


def test_learned_windows_show_the_curve_within_the_reach() -> None:
    shown = {panel.name: panel.values[0] for panel in panels(24)}
    window, exempt = shown["learned-window"], shown["learned, global"]
    reaches = [int(row.count_nonzero()) for row in window]
    assert len(set(reaches)) > 3
    assert torch.equal(window.diagonal(), torch.ones(24))
    # Within a reach the curve has not fallen below the threshold.
    assert window[window > 0].min() >= 0.5 - 1e-6
    middle = window[12]
    reach = int(middle[13:].count_nonzero())
    assert reach_of(variance_of(reach, 0.5), 0.5) == reach
    distance = (torch.arange(24) - 12.0)[middle > 0]
    curve = torch.exp(-distance.square() / (2 * variance_of(reach, 0.5)))
    torch.testing.assert_close(middle[middle > 0], curve)
    # Exempt pairs are neither cut nor weighted.
    assert exempt[0].eq(1).all() and exempt[:, 0].eq(1).all()
    torch.testing.assert_close(exempt[1:, 1:], window[1:, 1:])


def test_the_picture_is_the_same_every_time_and_small(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save_gallery(tmp_path / name)
    picture = (tmp_path / "a.svg").read_bytes()
    assert picture == (tmp_path / "b.svg").read_bytes()
    assert b"<dc:date>" not in picture
    assert len(picture) < 200_000
    # A page may refuse pictures inside a picture.
    assert b"<image" not in picture
