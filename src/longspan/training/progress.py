"""How far a stage is: a bar where there is a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

Told = Callable[[int, float, float], None]


@contextmanager
def progress(stage: str, done: int, steps: int, shown: bool) -> Iterator[Told]:
    """A function to be told of each step: its number, the loss and tokens a second."""
    if not shown or not sys.stderr.isatty():
        yield lambda step, loss, rate: None
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
        task = bar.add_task(stage, total=steps, completed=done, says="")

        def told(step: int, loss: float, rate: float) -> None:
            bar.update(task, completed=step, says=f"loss {loss:.4f}, {rate:,.0f} tokens/s")

        yield told
