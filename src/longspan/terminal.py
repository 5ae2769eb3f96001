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
            Text.assemble(("Error: ", "bold red"), _words(error))
        )
        raise typer.Exit(2) from None


def _words(error: Exception) -> str:
    """What an error says, in one line, without the number that a system has for it."""
    text = " ".join(str(error).split())
    return text.removeprefix(f"[Errno {error.errno}] ") if isinstance(error, OSError) else text


def say(console: Console, text: str, style: str = "") -> None:
    """Prints text as it is: nothing in it is markup, and no line is broken."""
    console.print(Text(text, style=style), soft_wrap=True)
