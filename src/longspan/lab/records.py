"""Records: what is left of runs when their weights are gone, small enough to be kept beside code.

A folder of records is a table that fills over time, on whatever machine: a run that has a record is
not made again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from ..recipes import Plan, Planned
from ..tasks.reading import source_of
from ..training import RunConfig
from ..training.records import write_json

__all__ = ["Done", "Lines", "keep", "kept", "lines_of", "path_of", "read_all"]

# A run, and its `result.json`.
Done = tuple[Planned, dict[str, Any]]

# A run, and lines of its metrics.
Lines = tuple[Planned, list[dict[str, Any]]]

# Settings of tasks that are paths.
PATHS = ("cache", "dev", "tokenizer")

# Lines of a run's metrics that a record has at most, besides its evaluations, and what it has of
# each, where that is there.
MOST_LINES = 20
IN_LINES = ("step", "stage", "kind", "loss", "metric")


def kept(folder: Path, planned: Planned) -> Done | None:
    """The record of a run, if there is one.

    Raises:
        ValueError: it is of other files of the same names.
    """
    path = path_of(folder, planned)
    if not path.is_file():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    here = _hashes(planned.config)
    for name, was in record.get("data", {}).items():
        if here.get(name, was) != was:
            raise ValueError(
                f"{path} is of another file that is called {name}: name another folder for the "
                "records, or the file"
            )
    return _done(record)


def path_of(folder: Path, planned: Planned) -> Path:
    """Where the record of a run is, or would be."""
    return folder / _name(planned)


def keep(folder: Path, plan: Plan, planned: Planned, run: Path) -> Path:
    """Writes the record of a run that has ended; returns its path."""
    record = {
        "row": planned.row,
        "order": plan.line_of(planned.row),
        **({} if planned.published is None else {"published": planned.published}),
        "config": _without_places(planned.config).as_dict(),
        "data": _hashes(planned.config),
        "result": json.loads((run / "result.json").read_text(encoding="utf-8")),
        "metrics": _lines(run / "metrics.jsonl"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, planned)
    write_json(path, record)
    return path


def read_all(folder: Path, only: str = "") -> list[Done]:
    """All records of a folder: rows in their order, seeds in theirs.

    Args:
        only: words that a row's name has to have.
    """
    return [_done(record) for record in _all(folder, only)]


def lines_of(folder: Path, only: str = "") -> list[Lines]:
    """For the same runs, the lines of their metrics that were kept."""
    return [(_done(record)[0], record.get("metrics", [])) for record in _all(folder, only)]


def _all(folder: Path, only: str) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ValueError(f"{folder} has no records")
    found = [(json.loads(path.read_text(encoding="utf-8")), path) for path in paths]
    for record, path in found:
        if not isinstance(record, dict) or not {"row", "order", "config", "result"} <= set(record):
            raise ValueError(f"{path} is no record of a run")
    found.sort(key=lambda own: (own[0]["order"], own[0]["config"]["seed"]))
    chosen = [record for record, _ in found if only in record["row"]]
    if not chosen:
        rows = dict.fromkeys(record["row"] for record, _ in found)
        raise ValueError(f"{folder} has no row with {only!r} in its name, but {'; '.join(rows)}")
    return chosen


def _done(record: dict[str, Any]) -> Done:
    config, published = RunConfig.from_dict(record["config"]), record.get("published")
    return Planned(row=record["row"], config=config, published=published), record["result"]


def _name(planned: Planned) -> str:
    """The same on every machine."""
    own = replace(planned, config=_without_places(planned.config), name=None)
    return f"{own.place}.json"


def _without_places(config: RunConfig) -> RunConfig:
    """With the names of files and folders, not where they lie."""
    settings = {
        name: _names(value) if name in PATHS else value
        for name, value in config.task["settings"].items()
    }
    task = {**config.task, "data": _names(config.task["data"]), "settings": settings}
    return replace(config, task=task, start=_names(config.start), output="runs")


def _hashes(config: RunConfig) -> dict[str, str]:
    """Of the files of a task that are there, by name."""
    settings = config.task["settings"]
    given = [config.task["data"], *(settings[name] for name in PATHS if name in settings)]
    paths = [Path(path) for path in _flat(given) if Path(path).is_file()]
    return {path.name: _hash(path, path.stat().st_mtime_ns) for path in paths}


@lru_cache
def _hash(path: Path, changed: int) -> str:
    return source_of(path).sha256


def _flat(paths: Any) -> list[Any]:
    if isinstance(paths, str | PurePath):
        return [paths]
    return [own for each in paths for own in _flat(each)] if isinstance(paths, Sequence) else []


def _names(paths: Any) -> Any:
    if isinstance(paths, str | PurePath):
        return PurePath(paths).name
    if isinstance(paths, Sequence):
        return [_names(path) for path in paths]
    return paths


def _lines(path: Path) -> list[dict[str, Any]]:
    """Evaluations, and some of the other lines, spread over the run."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    others = [line for line in lines if line["kind"] != "dev"]
    step = max(-(-len(others) // MOST_LINES), 1)
    chosen = {id(line) for line in others[::-1][::step]}
    return [_short(line) for line in lines if line["kind"] == "dev" or id(line) in chosen]


def _short(line: dict[str, Any]) -> dict[str, Any]:
    found = {name: line[name] for name in IN_LINES if name in line}
    if "reach" in line:
        found["reach"] = [round(layer["mean"], 3) for layer in line["reach"]["layer"]]
    return found
