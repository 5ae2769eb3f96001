"""A bar where there is a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from longspan.training.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, shown: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("strategy", 2, 8, shown) as told:
        told.step(3, 1.5, 1000.0, 0.5)
        told.step(4, 1.25, 1000.0, 0.25)
        told.evaluated(10, 40)
        told.evaluated(40, 40)
    return stream.getvalue()


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(Terminal(), monkeypatch)
    assert "strategy" in said and "4/8" in said
    # The mean of both steps, of which the first counts for nine tenths: 1,900 in 0.7 seconds.
    assert "loss 1.2500, 2,714 tokens/s, 2.71 steps/s" in said


def test_time_left_and_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each frame, as it would be drawn."""
    from rich.progress import Progress

    frames = []

    def update(self: Progress, *args: Any, **options: Any) -> None:
        before(self, *args, **options)
        self.refresh()
        frames.append([(own.description, own.completed, own.total) for own in self.tasks])

    before = Progress.update
    monkeypatch.setattr(Progress, "update", update)
    said = shown(Terminal(), monkeypatch)
    assert frames[1:] == [
        [("strategy", 4, 8)],
        [("strategy", 4, 8), ("evaluation", 10, 40)],
        [("strategy", 4, 8), ("evaluation", 40, 40)],
    ]
    assert "evaluation" in said and re.search(r"4/8.*0:0\d:\d\d", said)


def test_quiet_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == ""
    assert shown(Terminal(), monkeypatch, shown=False) == ""
