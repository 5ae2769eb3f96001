"""A bar where there is a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys

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
        told(3, 1.25, 4000.0)
    return stream.getvalue()


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(Terminal(), monkeypatch)
    assert "strategy" in said and "loss 1.2500, 4,000 tokens/s" in said and "/8" in said


def test_quiet_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == ""
    assert shown(Terminal(), monkeypatch, shown=False) == ""
