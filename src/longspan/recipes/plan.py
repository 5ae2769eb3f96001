"""A plan: runs that are compared, row by row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..training import RunConfig

__all__ = ["Plan", "Planned", "over_seeds"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A run, and the row of the table that it is for: runs of a row differ in their seeds alone.

    Attributes:
        name: of its folder, where it has one already.
        published: what others reported for the row, to be shown beside it.
    """

    row: str
    config: RunConfig
    name: str | None = None
    published: str | None = None

    @property
    def place(self) -> str:
        """A name for the run's folder, which tells it from every other run."""
        if self.name is not None:
            return self.name
        about = self.config.told()
        told = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
        words = "".join(c if c.isalnum() else "-" for c in self.row.lower())
        short = "-".join(filter(None, words.split("-")))[:48].strip("-")
        return f"{short}-seed{self.config.seed}-{told}"

    def inside(self, folder: Path) -> RunConfig:
        """The run's configuration with its folder inside this one."""
        return replace(self.config, output=str(folder / self.place))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Runs, in the order in which they are made; a table of them fills over time.

    Attributes:
        title: of the table.
        about: what it shows, in a sentence or two.
        runs: the first row is what others are compared with.
        table: all rows in the order in which a table has them, where it has more than these.
    """

    title: str
    about: str
    runs: tuple[Planned, ...]
    table: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError(f"Plan {self.title!r}: has no runs")
        there = set()
        for run in self.runs:
            if run.place in there:
                raise ValueError(
                    f"Plan {self.title!r}: two runs of {run.row!r} have the seed "
                    f"{run.config.seed}; name each seed once, such as seeds=[0, 1]"
                )
            there.add(run.place)
        missing = [row for row in self.rows if self.table and row not in self.table]
        if missing:
            raise ValueError(f"Plan {self.title!r}: table has no row {missing[0]!r}")

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.row for run in self.runs))

    def line_of(self, row: str) -> int:
        """A row's line in the table."""
        return (self.table or self.rows).index(row)

    def of_rows(self, rows: Sequence[str]) -> Plan:
        """With these rows alone, made in this order; their table keeps its own."""
        for row in rows:
            if row not in self.rows:
                raise ValueError(
                    f"the rows of {self.title!r} are {'; '.join(self.rows)}; got {row!r}"
                )
        runs = tuple(run for row in dict.fromkeys(rows) for run in self.runs if run.row == row)
        return replace(self, runs=runs, table=self.table or self.rows)

    def with_set(self, settings: Iterable[str]) -> Plan:
        """With values changed in every run, as `--set` takes them."""
        asked = list(settings)
        for one in asked:
            if one.partition("=")[0].strip() == "output":
                raise ValueError(f"--set {one}: the folder of the runs is that of -o (--output)")
        runs = tuple(replace(run, config=run.config.with_set(asked)) for run in self.runs)
        return replace(self, runs=runs)


def over_seeds(
    row: str, config: RunConfig, seeds: Sequence[int], *, published: str | None = None
) -> list[Planned]:
    """One row, once for each seed."""
    return [
        Planned(row=row, config=replace(config, seed=seed), published=published) for seed in seeds
    ]
