"""A layer whose scores have a scale of their own: every mechanism takes it, in every row."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from longspan.nn import (
    Attention,
    BigBird,
    FullAttention,
    LearnedWindow,
    Mechanism,
    Setting,
    SlidingWindow,
)
from longspan.patterns import Window

E, H, N = 12, 3, 24
SIZE = E // H

MECHANISMS: dict[str, Mechanism] = {
    "a pattern": Attention(Window(3, 3)),
    "full": FullAttention(),
    "full and causal": FullAttention(causal=True),
    "BigBird": BigBird(block=4, window=3, drawn=1, tokens="extra", length=N),
    "learned": LearnedWindow(E, H, mean_reach=3, max_reach=9),
    "window": SlidingWindow(E, H, left=3, global_projections=False),
    "projections of all tokens": SlidingWindow(E, H, left=3),
    "global rows from the input": SlidingWindow(E, H, left=3),
}
TAKES_TOKENS = ("BigBird", "learned", "window", "projections", "global rows")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_scale_is_a_factor_of_the_keys(kind: str, padded: bool, monkeypatch: Any) -> None:
    """Of those that a mechanism projects itself, too."""
    few = 4 if kind == "global rows from the input" else 0
    monkeypatch.setattr("longspan.nn.global_rows.FEW", few or 10**6)
    made = deepcopy(MECHANISMS[kind]).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.5)
    q, k, v = (torch.randn(2, H, N, SIZE, dtype=torch.float64) for _ in range(3))
    x = torch.randn(2, N, E, dtype=torch.float64)
    real = torch.ones(2, N, dtype=torch.bool)
    real[1, -5:] = not padded
    setting = Setting(x, real if padded else None)
    if kind.startswith(TAKES_TOKENS):
        marked = torch.zeros(2, N, dtype=torch.bool)
        marked[:, 0] = True
        setting = setting._replace(global_tokens=marked)
    scale = 1.3
    found = made(q, k, v, setting._replace(scale=scale))
    other = made(q, k, v, setting)
    times = scale * SIZE**0.5
    if isinstance(made, SlidingWindow) and made.global_projections:
        with torch.no_grad():
            for parameter in made.k_global.parameters():
                parameter.mul_(times)
    wanted = made(q, times * k, v, setting)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)
    # In every real row with more than one key, global ones among them.
    first = int("causal" in kind)
    rows = (found - other).abs().amax((1, 3)) > 1e-3
    assert rows[:, first:][real[:, first:]].all()
