"""What a run's windows have learned, as files and on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ..report.studies import study_from
from ..report.study_picture import save_study_picture
from ..report.study_tables import as_markdown, named_tokens, study_tables
from ..terminal import say
from ..training.records import full_disk_said, write_json
from ..writing import write_text

__all__ = ["save", "show"]


def show(console: Console, found: dict[str, Any]) -> None:
    """Prints the tables of a study."""
    study = study_from(found)
    for own in study_tables(study):
        table = Table(title=own.title, box=box.SIMPLE, pad_edge=False, title_justify="left")
        first, *others = own.columns
        table.add_column(first, no_wrap=True)
        for name in others:
            table.add_column(name.replace(" ", "\n"), justify="right")
        for name, values in own.rows:
            table.add_row(name, *own.cells(values))
        console.print(table)
    for title, named in named_tokens(study):
        say(console, f"{title}: {named}")


def save(found: dict[str, Any], folder: Path) -> list[Path]:
    """Writes `reaches.json`, `reaches.md` and `reaches.svg`; the picture, which needs matplotlib,
    last.
    """
    study = study_from(found)
    numbers, text, picture = (folder / f"reaches.{kind}" for kind in ("json", "md", "svg"))
    write_json(numbers, found)
    with full_disk_said(text):
        write_text(text, as_markdown(study))
    with full_disk_said(picture):
        save_study_picture(study, picture)
    return [numbers, text, picture]
