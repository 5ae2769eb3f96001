"""The rows, by name, the most important first: where time is short, the last are left out."""

from __future__ import annotations

from .calls import first_call_row, launches_row
from .eager import eager_row
from .learned import learned_row
from .lengths import lengths_row
from .longformer import longformer_row
from .patterns import bigbird_pattern, first_tokens, pattern_row, scattered_tokens
from .reaches import reaches_row
from .row import Row
from .training import training_row
from .windows import window_row

__all__ = ["ROWS", "Row"]


def _both(forward: float, backward: float) -> dict[str, float]:
    return {"forward": forward, "backward": backward}


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        window_row(
            "window-128", {"forward": (1.75, 2.2), "backward": (1.9, 2.3)}, small_blocks=True
        ),
        learned_row("independent", (3.0, 3.5)),
        launches_row(),
        eager_row(),
        lengths_row(),
        window_row("window-256", _both(1.5, 1.6), reach=256, small_blocks=True),
        window_row("window-512", _both(1.4, 1.5), reach=512, small_blocks=True),
        window_row("window-128-n65536", _both(1.7, 1.9), batch=1, length=65536),
        window_row("window-128-d128", _both(1.5, 1.5), head_dim=128),
        window_row("window-128-d32", _both(1.3, 1.5), head_dim=32),
        pattern_row("global-first", "window of 128 and the first 32 tokens", first_tokens, 1.5),
        longformer_row("longformer", tokens=0),
        longformer_row("longformer-global", tokens=4),
        first_call_row(),
        training_row(),
        reaches_row(),
        pattern_row("bigbird", "BigBird, blocks of 64, 3 drawn", bigbird_pattern, 1.2),
        pattern_row(
            "global-scattered", "window of 128 and 32 scattered tokens", scattered_tokens, 1.5
        ),
        learned_row("smooth"),
        learned_row("long-tailed"),
    )
}
