"""What a run of the benchmark found, and its file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..writing import write_text

__all__ = ["Figure", "Outcome", "Report", "Sample", "load", "save", "write_json"]


class Sample(NamedTuple):
    """Seconds of one call, over rounds.

    Attributes:
        median: what is compared.
        fastest: of all rounds.
        slowest: of all rounds.
        rounds: how many were counted.
    """

    median: float
    fastest: float
    slowest: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Sample:
        """The sample of some rounds."""
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one contender did.

    Attributes:
        problem: the problem's name.
        name: the contender's.
        length: tokens (rows, of a plain function).
        forward: without gradients.
        both: forward and backward.
        pairs: that exist, over samples and heads; 0 where that means nothing.
        tiles: that longspan's layout touches; 0 for others.
        flops: of the forward, where the contender is a plain matrix product.
        peak: bytes beyond the inputs in forward and backward, where memory was measured.
        missing: why it did not run; empty when it did.
    """

    problem: str
    name: str
    length: int = 0
    forward: Sample | None = None
    both: Sample | None = None
    pairs: int = 0
    tiles: int = 0
    flops: int = 0
    peak: int | None = None
    missing: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line of the table: a figure, what was asked of it, and whether it is met.

    Attributes:
        problem: the problem's name.
        what: is compared with what.
        unit: of the values: `"× floor"`, `"× faster"`, `"× the time"`, `"%"`, `"tokens"`.
        values: forward, and forward and backward; None where that was not measured.
        targets: the same two; None where nothing is asked.
        at_least: whether the targets are lower limits; upper ones otherwise.
        note: what a reader has to know.
    """

    problem: str
    what: str
    unit: str
    values: tuple[float | None, float | None]
    targets: tuple[float | None, float | None] = (None, None)
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether every target is; None when there is none, or nothing was measured for it."""
        asked = [
            (value, target)
            for value, target in zip(self.values, self.targets, strict=True)
            if target is not None
        ]
        if not asked or any(value is None for value, _ in asked):
            return None
        return all(
            value >= target if self.at_least else value <= target
            for value, target in asked
            if value is not None
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A whole run.

    Attributes:
        setting: machine, versions, threads, allocator: see `machine.setting`.
        outcomes: of every contender.
        figures: the lines of the table.
    """

    setting: dict[str, Any]
    outcomes: list[Outcome] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def save(report: Report, path: str | Path) -> None:
    """Writes a report as JSON, aside first: a broken write leaves the old file as it was."""
    found = {
        "setting": report.setting,
        "figures": [asdict(figure) | {"met": figure.met} for figure in report.figures],
        "outcomes": [_plain(outcome) for outcome in report.outcomes],
    }
    write_json(path, found)


def write_json(path: str | Path, found: Any) -> None:
    """Writes JSON aside first: a broken write leaves the old file as it was."""
    write_text(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def load(path: str | Path) -> Report:
    """Reads what `save` wrote."""
    found = json.loads(Path(path).read_text())
    figures = []
    for fields in found["figures"]:
        fields.pop("met")
        for name in ("values", "targets"):
            fields[name] = tuple(fields[name])
        figures.append(Figure(**fields))
    outcomes = []
    for fields in found["outcomes"]:
        for name in ("forward", "both"):
            if fields.get(name) is not None:
                fields[name] = Sample(**fields[name])
        outcomes.append(Outcome(**fields))
    return Report(setting=found["setting"], outcomes=outcomes, figures=figures)


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome for JSON: times by name, and nothing that was not measured."""
    fields: dict[str, Any] = {}
    for name in outcome.__dataclass_fields__:
        value = getattr(outcome, name)
        if isinstance(value, Sample):
            value = value._asdict()
        if value or name in ("problem", "name"):
            fields[name] = value
    return fields
