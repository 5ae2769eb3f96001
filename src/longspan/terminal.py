"""What every command says, and how it ends when a user has made a mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["bar_columns", "console_of", "errors_in_one_line", "say", "words_of"]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """What a user can do wrong ends the command with one line, not with a traceback."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            Text.assemble(("Error: ", "bold red"), words_of(error))
        )
        raise typer.Exit(2) from None


def console_of(width: int = 120) -> Console:
    """Where a command says things, with so many columns in a file, which has room for the names of
    rows.
    """
    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


class _Rate(ProgressColumn):
    """How many a second."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        return Text(
            f"{speed:,.0f} {self._what}/s" if speed >= 10 else f"{speed:.2g} {self._what}/s"
        )


def bar_columns(what: str) -> tuple[ProgressColumn, ...]:
    """The columns of a progress bar: title, bar, how many of how many, rate, time left.

    Args:
        what: is counted.
    """
    title = TextColumn("{task.description}")
    return (title, BarColumn(), MofNCompleteColumn(), _Rate(what), TimeRemainingColumn())


def words_of(error: Exception) -> str:
    """What an error says, in one line, without the number that a system has for it."""
    text = " ".join(str(error).split())
    return text.removeprefix(f"[Errno {error.errno}] ") if isinstance(error, OSError) else text


def say(console: Console, text: str, style: str = "") -> None:
    """Prints text as it is: nothing in it is markup, and no line is broken."""
    console.print(Text(text, style=style), soft_wrap=True)
