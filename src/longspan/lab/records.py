"""Records: what is left of runs when their weights are gone, small enough to be kept beside code.

A folder of records is a table that fills over time, on whatever machine: a run that has a record is
not made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from ..paths import expanded
from ..recipes import Plan, Planned
from ..tasks.reading import read_object
from ..tasks.registry import paths_of
from ..tasks.token_files import hash_of
from ..training import RunConfig
from ..training.folder import described_in, started_from
from ..training.records import write_json
from ..training.starting import described_start

__all__ = [
    "Done",
    "Lines",
    "check_record",
    "data_of",
    "keep",
    "kept",
    "lines_of",
    "path_of",
    "read_all",
]

# A run, and its `result.json`.
Done = tuple[Planned, dict[str, Any]]

# A run, and lines of its metrics.
Lines = tuple[Planned, list[dict[str, Any]]]


# Lines of a run's metrics that a record has at most, besides its evaluations, and what it has of
# each, where that is there.
MOST_LINES = 20
IN_LINES = ("step", "stage", "kind", "loss", "metric")


def kept(folder: Path, planned: Planned) -> Done | None:
    """The record of a run, if there is one."""
    record = _record(folder, planned)
    return None if record is None else (planned, record["result"])


def check_record(folder: Path, planned: Planned, tasks: Sequence[Mapping[str, Any]]) -> None:
    """Raises when the record of a run is of other data than these tasks, as they are described, of
    another start, or of another reach.
    """
    record = _record(folder, planned)
    before = {} if record is None else record.get("data", {})
    if not before:
        return
    start = described_start(planned.config.start)
    here = data_of(tasks) | _start(None if start is None else start["sha256"])
    here |= _reach_sources(planned.config)
    for name, was in before.items():
        if here.get(name, was) != was:
            raise ValueError(
                f"{path_of(folder, planned)} is of another {name} than the one here: begin anew "
                "with --fresh, or name another folder for the records"
            )


def _record(folder: Path, planned: Planned) -> dict[str, Any] | None:
    path = path_of(folder, planned)
    return _read(path) if path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    found = read_object(path)
    if not {"row", "order", "config", "result"} <= set(found):
        raise ValueError(f"{path} is no record of a run")
    return found


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
        "data": data_of(described_in(run))
        | _start(started_from(run))
        | _reach_sources(planned.config),
        "result": json.loads((run / "result.json").read_text(encoding="utf-8")),
        "metrics": _lines(run / "metrics.jsonl"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, planned)
    write_json(path, record)
    return path


def read_all(folder: Path, only: str = "", without: Sequence[str] = ()) -> list[Done]:
    """All records of a folder: rows in their order, seeds in theirs.

    Args:
        only: words that a row's name has to have.
        without: words that it may not have.
    """
    return [_done(record) for record in _all(folder, only, without)]


def lines_of(folder: Path, only: str = "", without: Sequence[str] = ()) -> list[Lines]:
    """For the same runs, the lines of their metrics that were kept."""
    found = _all(folder, only, without)
    return [(_done(record)[0], record.get("metrics", [])) for record in found]


def _all(folder: Path, only: str, without: Sequence[str]) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*.json"))
    if not paths:
        hint = "; the table of its runs is table.md" if (folder / "table.md").is_file() else ""
        raise ValueError(f"{folder} has no records, as --records leaves them{hint}")
    found = [_read(path) for path in paths]
    found.sort(key=lambda own: (own["order"], own["config"]["seed"]))
    rows = dict.fromkeys(record["row"] for record in found)
    for words in without:
        if not any(words in row for row in rows):
            raise ValueError(f"{folder} has no row with {words!r} to leave out: {'; '.join(rows)}")
    chosen = [record for record in found if only in record["row"]]
    if not chosen:
        raise ValueError(f"{folder} has no row with {only!r} in its name, but {'; '.join(rows)}")
    left = [own for own in chosen if not any(words in own["row"] for words in without)]
    if not left:
        raise ValueError(f"{folder} has no row left without {', '.join(map(repr, without))}")
    return left


def _done(record: dict[str, Any]) -> Done:
    config, published = RunConfig.from_dict(record["config"]), record.get("published")
    return Planned(row=record["row"], config=config, published=published), record["result"]


def _name(planned: Planned) -> str:
    """The same on every machine."""
    own = replace(planned, config=_without_places(planned.config), name=None)
    return f"{own.place}.json"


def _without_places(config: RunConfig) -> RunConfig:
    """With the names of files and folders, not where they lie."""
    name = str(config.task["name"])
    return replace(
        config,
        task=_task_without_places(config.task, name),
        stages=tuple(
            replace(
                stage,
                task=None if stage.task is None else _task_without_places(stage.task, name),
                reach_from=_names(stage.reach_from),
            )
            for stage in config.stages
        ),
        start=_names(config.start),
        output="runs",
    )


def _task_without_places(task: dict[str, Any], name: str) -> dict[str, Any]:
    """What is said of a task, of that name if it has none of its own."""
    paths = paths_of(str(task.get("name", name)))
    found = dict(task)
    if "data" in task:
        found["data"] = _names(task["data"])
    if "settings" in task:
        found["settings"] = {
            key: _names(value) if key in paths else value for key, value in task["settings"].items()
        }
    return found


def data_of(tasks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Hashes of what tasks, as they are described, have read: of files by name, of folders for all
    that was read in them, and of a tokenizer that was named.
    """
    found: dict[str, list[str]] = {}
    inside: dict[Path, dict[str, str]] = {}
    for task in tasks:
        given = [task["data"], *(task["settings"].get(name) for name in paths_of(task["name"]))]
        folders = [path for own in _flat(given) if (path := expanded(own)).is_dir()]
        for file in task["files"]:
            path = Path(file["path"])
            home = next((own for own in folders if path.is_relative_to(own)), None)
            if home is not None:
                name = path.relative_to(home).as_posix()
                inside.setdefault(home, {})[name] = file["sha256"]
            elif file["sha256"] not in found.setdefault(path.name, []):
                found[path.name].append(file["sha256"])
        if task["settings"].get("tokenizer") is not None and "tokens" in task:
            named = task.get("tokenizer")
            found["tokenizer"] = [task["tokens"] if named is None else named["sha256"]]
    for home, files in inside.items():
        own = hash_of(f"{name} {files[name]}" for name in sorted(files))
        found.setdefault(f"{home.name}/", []).append(own)
    return {name: own[0] if len(own) == 1 else hash_of(own) for name, own in found.items()}


def _start(sha256: str | None) -> dict[str, str]:
    return {} if sha256 is None else {"start": sha256}


def _reach_sources(config: RunConfig) -> dict[str, str]:
    """The weights of reach networks that other runs have learned."""
    inside = {stage.name for stage in config.stages}
    others = {stage.reach_from for stage in config.stages if stage.reach_from is not None} - inside
    found = [described_start(other) for other in sorted(others)]
    hashes = [own["sha256"] for own in found if own is not None]
    return {"reach_from": hash_of(hashes)} if hashes else {}


def _flat(paths: Any) -> list[Any]:
    if isinstance(paths, str | PurePath):
        return [paths]
    return [own for each in paths for own in _flat(each)] if isinstance(paths, Sequence) else []


def _names(paths: Any) -> Any:
    if isinstance(paths, str | PurePath):
        name = PurePath(paths).name
        # "." and ".." are no names.
        return name if name not in ("", "..") else Path(paths).resolve().name
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
        layers = line["reach"]["layer"]
        found["reach"] = [None if own is None else round(own["mean"], 3) for own in layers]
    return found
