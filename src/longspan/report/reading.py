"""Run folders, read as they are: what is missing or broken is said, and the rest is used."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .looks import Look, look_from
from .studies import Study, study_from

__all__ = ["LayerReach", "Record", "Run", "read_run"]

Found = TypeVar("Found")

QUANTILES = 5
ABOUT_A_RECORD = frozenset(
    {"step", "loss", "tokens_per_second", "peak_memory", "learning_rate", "seconds", "pairs"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReach:
    """The reach of one layer at one step.

    Attributes:
        mean: over tokens and heads.
        quantiles: smallest, first quarter, middle, third quarter, largest; may be empty.
        heads: the mean of each head; may be empty.
    """

    mean: float
    quantiles: Sequence[float]
    heads: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One line of `metrics.jsonl`.

    Attributes:
        at: steps since the run began, over all its stages.
        stage: the stage's name.
        kind: "train" or "dev".
        loss: None where there is none, or it is not a number.
        metrics: the other measures by name.
        reach: of each layer, None for a layer that has none.
    """

    at: int
    stage: str
    kind: str
    loss: float | None
    metrics: dict[str, float]
    reach: Sequence[LayerReach | None] = ()


@dataclass(kw_only=True, slots=True)
class Run:
    """One run folder.

    Attributes:
        folder: where it lies.
        config: what `config.json` holds; empty if that could not be read.
        result: what `result.json` holds; empty if that could not be read.
        records: the lines of `metrics.jsonl` that could be read.
        look: what tokens of a document see; None where the run wrote none.
        study: what its windows have learned; None where nobody looked.
        row: what tables call it; empty where none does, or several in their own ways.
        problems: what is wrong with the folder, a sentence each.
    """

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    look: Look | None = None
    study: Study | None = None
    row: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name or str(self.folder)

    @property
    def task(self) -> str:
        """The task's name; empty where no file tells."""
        stages = self.config.get("stages")
        last = stages[-1] if isinstance(stages, list) and stages else None
        # The last stage may have a task of its own, and is what is measured in the end.
        own = last.get("task") if isinstance(last, dict) else None
        for found in (self.result.get("task"), own, self.config.get("task")):
            if isinstance(found, dict):
                found = found.get("name")
            if isinstance(found, str) and found:
                return found
        return ""

    @property
    def seed(self) -> int | None:
        for found in (self.result.get("seed"), self.config.get("seed")):
            if isinstance(found, int) and not isinstance(found, bool):
                return found
        return None

    @property
    def metric(self) -> str | None:
        """The name of the task's main measure."""
        found = self.result.get("metric")
        return found if isinstance(found, str) and found else None

    def number(self, name: str) -> float | None:
        """A finite number of the result: a measure by its name, or "pairs", "seconds" and so on."""
        measures = self.result.get("metrics")
        found = measures.get(name) if isinstance(measures, dict) else None
        return finite(self.result.get(name) if found is None else found)


def read_run(folder: Path) -> Run:
    """Reads what there is in a run folder; never raises for what is in it."""
    run = Run(folder=folder)
    if not folder.is_dir():
        run.problems.append(
            "this is a file; name the folder that it lies in"
            if folder.exists()
            else "there is no such folder"
        )
        return run
    run.config = _read_object(folder / "config.json", run.problems) or {}
    run.result = _read_object(folder / "result.json", run.problems) or {}
    _check_result(run)
    run.records = _read_records(folder / "metrics.jsonl", run.problems)
    run.look = _there(folder / "looks.json", look_from, run.problems)
    run.study = _there(folder / "reaches.json", study_from, run.problems)
    run.row = _there(folder / "row.json", _row, run.problems) or ""
    return run


def _there(path: Path, made: Callable[[Any], Found], problems: list[str]) -> Found | None:
    """What a file that may be missing holds."""
    if not path.exists():
        return None
    try:
        return made(_json(path))
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be shown: {_said(error)}")
        return None


def _row(found: Any) -> str:
    """The name in notes on which rows of tables a run is, if it is one name."""
    notes = found if isinstance(found, list) else [found]
    rows = [own.get("row") if isinstance(own, dict) else None for own in notes]
    if not all(isinstance(own, str) and own for own in rows):
        raise ValueError("it must list rows with their names")
    return str(rows[0]) if len(set(rows)) == 1 else ""


def finite(found: Any) -> float | None:
    """A number, or None for everything else, NaN and infinity among it."""
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        value = float(found)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg}, line {error.lineno})"
    return str(error)


def _read_object(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.exists():
        why = ": the run has not ended" if path.name == "result.json" else ""
        problems.append(f"{path.name} is missing{why}")
        return None
    try:
        found = _json(path)
        if not isinstance(found, dict):
            raise ValueError("it must hold an object")
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {_said(error)}")
        return None
    return found


def _check_result(run: Run) -> None:
    if not run.result:
        return
    if run.metric is None:
        run.problems.append("result.json names no metric")
    elif run.number(run.metric) is None:
        run.problems.append(f"result.json has no finite number for the metric {run.metric!r}")


def _read_records(path: Path, problems: list[str]) -> list[Record]:
    if not path.exists():
        problems.append("metrics.jsonl is missing")
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        problems.append(f"metrics.jsonl cannot be read: {_said(error)}")
        return []
    records: list[Record] = []
    broken: list[int] = []
    bad_losses = 0
    # Stages may count their steps from the beginning each: then they are strung together.
    before, last, stage = 0, 0, None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            step = int(found["step"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            broken.append(number)
            continue
        if stage is not None and found.get("stage") != stage and before + step < last:
            before = last
        stage, last = found.get("stage"), before + step
        record = _record(found, last)
        bad_losses += record.loss is None and found.get("loss") is not None
        records.append(record)
    if broken:
        which = ", ".join(str(number) for number in broken[:3]) + ("…" if broken[3:] else "")
        lines_are = "line is" if len(broken) == 1 else "lines are"
        problems.append(
            f"metrics.jsonl: {len(broken)} {lines_are} no record with a step ({which}); left out"
        )
    if bad_losses:
        problems.append(f"metrics.jsonl: {bad_losses} losses are not finite numbers; left out")
    if not records and not broken:
        problems.append("metrics.jsonl is empty")
    return records


def _record(found: dict[str, Any], at: int) -> Record:
    metrics = {name: finite(value) for name, value in found.items() if name not in ABOUT_A_RECORD}
    inner = found.get("metrics")
    if isinstance(inner, dict):
        metrics |= {str(name): finite(value) for name, value in inner.items()}
    return Record(
        at=at,
        stage=str(found.get("stage", "")),
        kind=str(found.get("kind", "train")),
        loss=finite(found.get("loss")),
        metrics={name: value for name, value in metrics.items() if value is not None},
        reach=_reach(found.get("reach")),
    )


def _reach(found: Any) -> list[LayerReach | None]:
    if not isinstance(found, dict) or not isinstance(found.get("layer"), list):
        return []
    heads = found.get("heads")
    reaches: list[LayerReach | None] = []
    for place, layer in enumerate(found["layer"]):
        mean = finite(layer.get("mean")) if isinstance(layer, dict) else None
        if mean is None:
            reaches.append(None)
            continue
        own = heads[place] if isinstance(heads, list) and place < len(heads) else []
        quantiles = _finite_list(layer.get("quantiles"))
        reaches.append(
            LayerReach(
                mean=mean,
                quantiles=quantiles if len(quantiles) == QUANTILES else [],
                heads=_finite_list(own),
            )
        )
    return reaches


def _finite_list(found: Any) -> list[float]:
    if not isinstance(found, list):
        return []
    values = [finite(value) for value in found]
    kept = [value for value in values if value is not None]
    return kept if len(kept) == len(values) else []
