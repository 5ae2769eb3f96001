"""How far a stage is: a bar where there is a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Shown", "progress"]

# How much of a rate each step leaves standing.
STANDING = 0.9


class Shown:
    """What is told of steps and evaluations; this one shows nothing."""

    def step(self, number: int, loss: float, tokens: float, seconds: float) -> None:
        """Step `number` is done, with so many tokens and in so many seconds."""

    def evaluated(self, done: int, examples: int) -> None:
        """So many of an evaluation's examples are done."""


class _Bar(Shown):
    """Steps with rates and the time left, and below them an evaluation while there is one."""

    def __init__(self, bar: Any, stage: str, done: int, steps: int) -> None:
        self._bar = bar
        self._steps = bar.add_task(stage, total=steps, completed=done, says="")
        self._evaluation: Any = None
        self._tokens = self._seconds = self._count = 0.0

    def step(self, number: int, loss: float, tokens: float, seconds: float) -> None:
        # Over the last ten steps or so: one alone jumps.
        self._tokens = STANDING * self._tokens + tokens
        self._seconds = STANDING * self._seconds + seconds
        self._count = STANDING * self._count + 1
        took = max(self._seconds, 1e-9)
        says = f"loss {loss:.4f}, {self._tokens / took:,.0f} tokens/s, "
        says += f"{self._count / took:,.2f} steps/s"
        self._bar.update(self._steps, completed=number, says=says)

    def evaluated(self, done: int, examples: int) -> None:
        if self._evaluation is None:
            self._evaluation = self._bar.add_task("evaluation", total=examples, says="")
        speed = self._bar.tasks[-1].speed
        says = "" if speed is None else f"{speed:,.0f} examples/s"
        self._bar.update(self._evaluation, completed=done, says=says)
        if done >= examples:
            self._bar.remove_task(self._evaluation)
            self._evaluation = None


@contextmanager
def progress(stage: str, done: int, steps: int, shown: bool) -> Iterator[Shown]:
    """What is to be told of each step and evaluation of a stage."""
    if not shown or not sys.stderr.isatty():
        yield Shown()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[says]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        yield _Bar(bar, stage, done, steps)
