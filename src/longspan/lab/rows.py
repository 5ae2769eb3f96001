"""The rows that the runs of a folder are for: a table has all that were made there, by whatever
calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..recipes import Plan, Planned
from ..training import RunConfig
from ..training.folder import finished
from ..training.records import write_json
from .records import Done

__all__ = ["apart", "flat", "note", "plan_of", "tables_of"]

ROW = "row.json"

# Settings by which rows of one name are told apart, at most.
MOST_TOLD = 3

# Settings of which nothing follows for what is computed.
BESIDE = ("task.settings.cache",)


@dataclass(frozen=True, slots=True)
class _Note:
    """Which row a run is for.

    Attributes:
        title: of the table.
        order: its line there.
        row: its name.
        published: what others reported for it.
    """

    title: str
    order: int
    row: str
    published: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run that has ended, and when; those of the plan at hand are younger than all others."""

    note: _Note
    done: Done
    when: float = float("inf")

    @property
    def config(self) -> RunConfig:
        return self.done[0].config

    @property
    def metric(self) -> str:
        return str(self.done[1]["metric"])

    @property
    def setup(self) -> dict[str, str]:
        """What it is made with, but for the seed."""
        found = flat(replace(self.config, seed=0))
        return {name: value for name, value in found.items() if name not in BESIDE}


def note(plan: Plan, planned: Planned, run: Path) -> None:
    """Writes into a run's folder, if there is one, which row it is for, beside those of other
    tables.
    """
    own = _Note(plan.title, plan.line_of(planned.row), planned.row, planned.published)
    there = _noted(run)
    if run.is_dir() and own not in there:
        others = [other for other in there if other.title != own.title]
        write_json(run / ROW, [asdict(one) for one in (*others, own)])


def plan_of(run: Path) -> Plan:
    """The run that lies in a folder, in its place among those beside it."""
    config, noted = RunConfig.read(run), _noted(run)
    name = str(config.task["name"])
    own = noted[-1] if noted else _Note(title=name, order=0, row=name)
    beside = [other for _, other in _notes(run.parent) if other.title == own.title]
    rows = dict.fromkeys(other.row for other in sorted([*beside, own], key=lambda one: one.order))
    known = Planned(row=own.row, config=config, name=run.name, published=own.published)
    return Plan(title=own.title, about="", runs=(known,), table=tuple(rows))


def tables_of(plan: Plan, done: Sequence[Done], folder: Path) -> dict[str, list[Done]]:
    """All rows of a folder, by the titles of their tables; that of the plan is the first. Rows of
    one name that were made with other settings are told apart by these.

    Args:
        done: runs of the plan, some of which may lie elsewhere.
    """
    lines, places = plan.table or plan.rows, {planned.place for planned in plan.runs}
    found = [_Entry(_Note(plan.title, lines.index(own[0].row), own[0].row), own) for own in done]
    for run, own in _notes(folder):
        known = own.title == plan.title and run.name in places
        entry = None if known else _entry(run, own)
        if entry is None:
            continue
        if own.title == plan.title and own.row in lines:
            entry = replace(entry, note=replace(own, order=lines.index(own.row)))
        found.append(entry)
    tables: dict[tuple[str, str], list[_Entry]] = {}
    # What is measured otherwise cannot be compared.
    for entry in sorted(found, key=lambda own: own.note.title != plan.title):
        tables.setdefault((entry.note.title, entry.metric), []).append(entry)
    told: dict[str, list[Done]] = {}
    for (title, metric), rows in tables.items():
        told[title if title not in told else f"{title}: {metric}"] = _in_order(rows)
    return told


def apart(done: Sequence[Done]) -> list[Done]:
    """The same runs; rows of one name that were made otherwise are told apart by their settings."""
    lines = list(dict.fromkeys(planned.row for planned, _ in done))
    return _in_order([_Entry(_Note("", lines.index(own[0].row), own[0].row), own) for own in done])


def _notes(folder: Path) -> Iterator[tuple[Path, _Note]]:
    """The runs of a folder, each with its notes."""
    for path in sorted(folder.glob(f"*/{ROW}")):
        for own in _noted(path.parent):
            yield path.parent, own


def _noted(run: Path) -> list[_Note]:
    """A run's notes, one for a table; the last one is the youngest."""
    try:
        found = json.loads((run / ROW).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = []
    # A run needs none: what is no note is passed over.
    return [_Note(**own) for own in found if _is_note(own)] if isinstance(found, list) else []


def _is_note(own: Any) -> bool:
    """Whether JSON is a note."""
    if not isinstance(own, dict) or set(own) != {"title", "order", "row", "published"}:
        return False
    texts = own["title"], own["row"], own["published"] or ""
    return type(own["order"]) is int and all(isinstance(text, str) for text in texts)


def _entry(run: Path, own: _Note) -> _Entry | None:
    """A run of another call, if it has ended; what is wrong with it is said by a report."""
    try:
        result, config = finished(run), RunConfig.read(run)
        if result is None:
            return None
        planned = Planned(row=own.row, config=config, name=run.name, published=own.published)
        return _Entry(own, (planned, result), (run / "result.json").stat().st_mtime)
    except (OSError, ValueError, TypeError):
        return None


def _in_order(entries: Sequence[_Entry]) -> list[Done]:
    """Rows in their order, seeds in theirs."""
    rows: dict[str, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda own: own.note.order):
        rows.setdefault(entry.note.row, []).append(entry)
    return [done for row in rows.values() for done in _told_apart(row)]


def _told_apart(row: Sequence[_Entry]) -> Iterator[Done]:
    """Runs of one row, by what they were made with: the youngest keep its name, and the others have
    what is another in theirs.
    """
    setups: dict[tuple[tuple[str, str], ...], dict[int, _Entry]] = {}
    for entry in sorted(row, key=lambda own: own.when, reverse=True):
        # A copy of a run is no second one.
        setup = tuple(sorted(entry.setup.items()))
        setups.setdefault(setup, {}).setdefault(entry.config.seed, entry)
    first = next(iter(next(iter(setups.values())).values()))
    names: set[str] = set()
    for own in setups.values():
        one = next(iter(own.values()))
        name = one.note.row if one is first else f"{one.note.row} ({_other(one, first)})"
        # What is told may be the same of several.
        name = name if name not in names else f"{name}, {one.done[0].place}"
        names.add(name)
        for _, entry in sorted(own.items()):
            planned, result = entry.done
            yield replace(planned, row=name), result


def _other(one: _Entry, first: _Entry) -> str:
    """What is another in a run than in the first."""
    mine, theirs = one.setup, first.setup
    keys = [key for key in mine if mine[key] != theirs.get(key)]
    told = [f"{key} {mine[key]}" for key in keys]
    told += [f"no {key}" for key in theirs if key not in mine]
    return ", ".join([*told[:MOST_TOLD], *(["…"] if told[MOST_TOLD:] else [])])


def flat(config: RunConfig) -> dict[str, str]:
    """Values by the names that `--set` takes; those that are not given are left out, and so is the
    folder.
    """
    found: dict[str, str] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, own in value.items():
                walk(f"{name}.{key}" if name else key, own)
        elif isinstance(value, list) and value and all(isinstance(own, dict) for own in value):
            for place, own in enumerate(value):
                walk(f"{name}.{own.get('name', place)}", own)
        elif value is not None:
            found[name] = value if isinstance(value, str) else json.dumps(value)

    walk("", config.computes())
    return found
