"""What a run on a GPU found, and its file. Times are in microseconds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..records import write_json

__all__ = ["Entry", "Figure", "How", "Need", "Report", "Result", "Taken", "load", "merged", "save"]

How = Literal["graph", "eager", "clock", "host"]


class Taken(NamedTuple):
    """Microseconds of one call.

    Attributes:
        median: what is compared.
        lower: the quartile below it.
        upper: the quartile above it.
        rounds: how many calls were timed.
        how: from a captured graph; eager, which includes what Python does before a launch; by the
            clock on the wall; or on the host, which does not wait for the device.
    """

    median: float
    lower: float
    upper: float
    rounds: int
    how: How = "graph"

    @classmethod
    def of(cls, microseconds: Sequence[float], how: How = "graph") -> Taken:
        """Median and quartiles of some rounds."""
        if len(microseconds) == 1:
            return cls(*3 * (microseconds[0],), 1, how)
        lower, _, upper = statistics.quantiles(microseconds, n=4, method="inclusive")
        return cls(statistics.median(microseconds), lower, upper, len(microseconds), how)


class Need(NamedTuple):
    """What a pass cannot do without: see `floor`.

    Attributes:
        bytes: read and written once.
        flops: of the matrix products over the pairs that exist.
        bytes_time: that these bytes take at the card's rate; None for an unknown card.
        flops_time: the same of the flops.
    """

    bytes: int
    flops: int
    bytes_time: float | None = None
    flops_time: float | None = None

    @property
    def time(self) -> float | None:
        """The longer of the two: no kernel is faster."""
        if self.bytes_time is None or self.flops_time is None:
            return None
        return max(self.bytes_time, self.flops_time)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What one contender of a row took.

    Attributes:
        name: the contender's.
        passes: times by the name of the pass: forward, backward, mask, step.
        note: which of its variants was fastest, and what failed.
        missing: why it did not run; empty when it did.
    """

    name: str
    passes: dict[str, Taken] = field(default_factory=dict)
    note: str = ""
    missing: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A number that is asked for.

    Attributes:
        what: is compared, or counted.
        unit: of the value.
        value: None when it could not be measured.
        target: None where nothing is asked.
        stretch: what would be better still.
        at_least: whether the target is a lower limit; an upper one otherwise.
        note: what a reader has to know.
    """

    what: str
    unit: str
    value: float | None
    target: float | None = None
    stretch: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is; None when there is none, or no value."""
        return self._reaches(self.target)

    @property
    def stretched(self) -> bool | None:
        """Whether the value is as good as `stretch`."""
        return self._reaches(self.stretch)

    def _reaches(self, limit: float | None) -> bool | None:
        if limit is None or self.value is None:
            return None
        return self.value >= limit if self.at_least else self.value <= limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A row of the benchmark, measured.

    Attributes:
        row: its name.
        title: in one line.
        size: batch, heads, length, head_dim; empty where several are measured.
        pairs: that exist, over samples and heads; 0 where that means nothing.
        needs: by pass.
        entries: a contender each.
        figures: with their targets.
        seconds: that the row took, compiling included.
        missing: why the whole row did not run.
    """

    row: str
    title: str
    size: dict[str, int] = field(default_factory=dict)
    pairs: int = 0
    needs: dict[str, Need] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    seconds: float = 0.0
    missing: str = ""

    def entry(self, name: str) -> Entry | None:
        """A contender's entry."""
        return next((entry for entry in self.entries if entry.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A whole run: where it ran, and its rows."""

    setting: dict[str, Any]
    results: list[Result] = field(default_factory=list)

    def result(self, row: str) -> Result | None:
        """A row by name."""
        return next((result for result in self.results if result.row == row), None)


def save(report: Report, path: str | Path) -> None:
    """Writes a report as JSON, aside first: a broken write leaves the old file as it was."""
    write_json(path, {"setting": report.setting, "rows": [_plain(r) for r in report.results]})


def load(path: str | Path) -> Report:
    """Reads what `save` wrote."""
    found = json.loads(Path(path).read_text())
    try:
        return Report(setting=found["setting"], results=[_result(row) for row in found["rows"]])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} was not written by 'longspan bench gpu': {error!r}") from error


def merged(reports: Iterable[Report]) -> Report:
    """Several runs on one card as one: of a row that ran twice, the later is taken."""
    reports = list(reports)
    cards = {report.setting.get("card") for report in reports}
    if len(cards) > 1:
        raise ValueError(f"reports are of different cards: {', '.join(sorted(map(str, cards)))}")
    rows: dict[str, Result] = {}
    for result in (result for report in reports for result in report.results):
        if not result.missing or result.row not in rows or rows[result.row].missing:
            rows[result.row] = result
    return Report(setting=reports[-1].setting, results=list(rows.values()))


def _plain(result: Result) -> dict[str, Any]:
    fields = {name: getattr(result, name) for name in ("row", "title", "size", "pairs")}
    fields["needs"] = {name: need._asdict() for name, need in result.needs.items()}
    fields["figures"] = [asdict(figure) | {"met": figure.met} for figure in result.figures]
    fields["entries"] = [
        {
            "name": entry.name,
            "passes": {name: taken._asdict() for name, taken in entry.passes.items()},
            "note": entry.note,
            "missing": entry.missing,
        }
        for entry in result.entries
    ]
    return fields | {"seconds": round(result.seconds, 1), "missing": result.missing}


def _result(fields: dict[str, Any]) -> Result:
    fields["needs"] = {name: Need(**need) for name, need in fields["needs"].items()}
    for figure in fields["figures"]:
        figure.pop("met")
    fields["figures"] = [Figure(**figure) for figure in fields["figures"]]
    entries = []
    for entry in fields["entries"]:
        passes = {name: Taken(**taken) for name, taken in entry.pop("passes").items()}
        entries.append(Entry(passes=passes, **entry))
    return Result(**fields | {"entries": entries})
