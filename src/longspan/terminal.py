"""What every command says, and how it ends when a user has made a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

__all__ = ["errors_in_one_line", "say"]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """What a user can do wrong ends the command with one line, not with a traceback."""
    try:
        yield
    except (ValueError, ImportError, OSError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            Text.assemble(("Error: ", "bold red"), str(error))
        )
        raise typer.Exit(2) from None


def say(console: Console, text: str, style: str = "") -> None:
    """Prints text as it is: nothing in it is markup, and no line is broken."""
    console.print(Text(text, style=style), soft_wrap=True)
