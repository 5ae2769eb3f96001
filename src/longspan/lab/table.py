"""The table of runs: on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ..writing import write_text
from .comparing import Compared, Spread, compared
from .records import Done

__all__ = ["as_markdown", "save", "save_all", "show"]


def show(console: Console, title: str, done: Sequence[Done]) -> None:
    """Prints the rows."""
    names, lines = _table(done)
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def as_markdown(done: Sequence[Done]) -> str:
    """The rows as a table of Markdown."""
    names, rows = _table(done)
    lines = [["", *names], ["---", *["--:"] * len(names)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def save(done: Sequence[Done], path: Path) -> Path:
    """Writes the rows as Markdown."""
    write_text(path, as_markdown(done))
    return path


def save_all(tables: Mapping[str, Sequence[Done]], path: Path) -> Path:
    """Writes several tables, each below its title; one alone needs none."""
    texts = {title: as_markdown(done) for title, done in tables.items()}
    parts = [f"**{title}**\n\n{text}" for title, text in texts.items()]
    write_text(path, "\n".join(parts if len(parts) > 1 else texts.values()))
    return path


def _table(done: Sequence[Done]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns but the first, and the lines. A column that no row has is left
    out.
    """
    first = done[0][1]
    rows = compared(done, lower_is_better=bool(first.get("lower_is_better")))
    also = dict.fromkeys(name for row in rows for name in row.also)
    columns: dict[str, list[str]] = {str(first["metric"]): [str(row.quality) for row in rows]}
    columns |= {name: [str(row.also.get(name, "—")) for row in rows] for name in also}
    columns["published"] = [row.published or "" for row in rows]
    columns["better than the first"] = [_share(row.better) for row in rows]
    if any(row.reach is not None for row in rows):
        columns["reach, asked and actual"] = [_reach(row) for row in rows]
    columns["pairs"] = [_whole(row.pairs) for row in rows]
    columns["tokens/s"] = [_whole(row.tokens_per_second) for row in rows]
    columns["memory"] = [_memory(row.peak_memory) for row in rows]
    columns["seconds"] = [f"{row.seconds:,.0f}" for row in rows]
    there = {name: cells for name, cells in columns.items() if any(cells)}
    lines = zip(*there.values(), strict=True)
    return list(there), [[row.row, *line] for row, line in zip(rows, lines, strict=True)]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _reach(row: Compared) -> str:
    found = [] if row.asked_reach is None else [f"{row.asked_reach:.4g}"]
    if row.reach is not None:
        found.append(f"{row.reach.mean:.1f}")
    return ", ".join(found) or "—"


def _whole(value: Spread | None) -> str:
    return "—" if value is None else f"{value.mean:,.0f}"


def _memory(value: float | None) -> str:
    return "—" if value is None else f"{value / 2**20:,.0f} MiB"
