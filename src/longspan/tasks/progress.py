"""How far work on files has come: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]


@contextmanager
def progress(title: str, total: int, what: str = "texts") -> Iterator[Callable[[int], None]]:
    """A function that is told how much more was done, and shows it with rate and time left.

    Args:
        what: is counted.
    """
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    from ..terminal import bar_columns

    with Progress(*bar_columns(what), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)
