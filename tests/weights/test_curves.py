from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longspan.weights import reach_of, variance_of
from longspan.weights.curves import draw_curve, save_curve, underflow_of

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("dtype", DTYPES)
@given(variance=st.floats(0.05, 1e4))
def test_underflows_where_torch_does(dtype: torch.dtype, variance: float) -> None:
    found = underflow_of(variance, dtype)
    distance = torch.arange(found.zero + 2, dtype=torch.float64)
    curve = torch.exp(-distance.square() / (2 * variance)).to(dtype)
    assert curve[: found.subnormal].min() >= torch.finfo(dtype).smallest_normal
    assert curve[found.subnormal] < torch.finfo(dtype).smallest_normal
    assert curve[: found.zero].min() > 0
    assert curve[found.zero] == 0


def test_underflows_at_exact_distances() -> None:
    # The curve is 2⁻²⁵ at distance 5: half of the smallest float16, a tie that rounds to 0.
    variance = 25 / (2 * 25 * math.log(2))
    assert underflow_of(variance * (1 - 1e-12), torch.float16).zero == 5
    assert underflow_of(variance * (1 + 1e-12), torch.float16).zero == 6


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, 1e19])
def test_refuses_a_variance_that_has_no_curve(variance: float) -> None:
    with pytest.raises(ValueError, match="variance must be above 0"):
        underflow_of(variance, torch.float32)


def test_draws_bars_and_marks_the_cut() -> None:
    assert draw_curve(9.5, 0.5, width=21, height=4).splitlines() == [
        "      1 │        ▂▆█▆▂",
        "    0.5 │       ▄█████▄",
        "        │      ░███████░",
        "        │    ░░░███████░░░",
        "        └───────┴──┴──┴───────",
        "               -3  0  3",
    ]


@given(variance=st.floats(1e-6, 1e18), threshold=st.floats(1e-6, 0.999))
def test_draws_any_curve_within_the_width(variance: float, threshold: float) -> None:
    lines = draw_curve(variance, threshold, width=40).splitlines()
    assert len(lines) == 10
    assert max(map(len, lines)) <= 9 + 40
    # The middle column is full, whatever the scale.
    middle = lines[-2].index("└") + (len(lines[-2]) - lines[-2].index("└")) // 2
    assert all(line[middle] == "█" for line in lines[:8])


def test_names_the_reach_under_the_axis() -> None:
    assert reach_of(variance_of(128, 0.5), 0.5) == 128
    assert draw_curve(variance_of(128, 0.5), 0.5).splitlines()[-1].split() == ["-128", "0", "128"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_saves_the_same_picture_every_time(suffix: str, tmp_path: Path) -> None:
    pictures = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for picture in pictures:
        save_curve(9.5, 0.5, picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_refuses_a_picture_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png or \.svg, got 'bell\.pdf'"):
        save_curve(9.5, 0.5, tmp_path / "bell.pdf")
