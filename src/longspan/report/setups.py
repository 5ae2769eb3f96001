"""Runs that share everything but the seed are one setup: its name, and what its runs measure."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .reading import Run

__all__ = ["Setup", "Spread", "lower_is_better", "setups_of", "stands_apart"]

# What may differ between the runs of one setup: the draw, and where it was written.
OWN_TO_A_RUN = ("seed", "output", "folder")
LOWER_IS_BETTER = frozenset({"bits", "loss", "perplexity", "nats", "error", "bits_per_byte"})
MOST_DIFFERENCES = 3


class Spread(NamedTuple):
    """Values of several seeds: their mean, sample deviation (None for one value) and number."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Runs of one task that share everything but the seed.

    Attributes:
        name: short, and of no other setup of the report.
        task: the task's name.
        metric: the name of its main measure; empty where no run tells.
        place: its number in the report, which gives its colour.
        runs: in the order they were named.
    """

    name: str
    task: str
    metric: str
    place: int
    runs: Sequence[Run]

    def spread(self, name: str) -> Spread | None:
        """Mean and deviation of a number of the results; None where no run has it."""
        values = [value for run in self.runs if (value := run.number(name)) is not None]
        if not values:
            return None
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return Spread(statistics.fmean(values), deviation, len(values))

    def run_name(self, run: Run) -> str:
        """The setup's name, and which of its runs it is where there are several."""
        if len(self.runs) == 1:
            return self.name
        seeds = [other.seed for other in self.runs]
        if run.seed is None or seeds.count(run.seed) > 1:
            return f"{self.name}, {run.name}"
        return f"{self.name}, seed {run.seed}"

    def first_with(self, fits: Callable[[Run], Any]) -> Run | None:
        """The first run that has something."""
        return next((run for run in self.runs if fits(run)), None)


def setups_of(runs: Sequence[Run]) -> list[Setup]:
    """Groups runs that can be shown; a folder without a single readable file is in none."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.config or run.result or run.records or run.look or run.study:
            groups.setdefault(_key(run), []).append(run)
    members = list(groups.values())
    names = _names(members)
    metrics: dict[str, str] = {}
    for run in runs:
        if run.metric is not None:
            metrics.setdefault(run.task, run.metric)
    found = []
    for place, (name, group) in enumerate(zip(names, members, strict=True)):
        # A run with a result calls its task as others with one do.
        task = next((run.task for run in group if run.metric is not None), group[0].task)
        metric = metrics.get(task, "")
        found.append(Setup(name=name, task=task, metric=metric, place=place, runs=group))
    return found


def lower_is_better(setups: Sequence[Setup]) -> bool:
    """Whether a smaller value of the main measure is the better one."""
    for setup in setups:
        for run in setup.runs:
            if isinstance(run.result.get("lower_is_better"), bool):
                return run.result["lower_is_better"]
    return bool(setups) and setups[0].metric in LOWER_IS_BETTER


def stands_apart(spreads: Sequence[Spread | None], *, lower: bool) -> int | None:
    """Which value is the best beyond its spread; None where the spread does not allow to say.

    The best mean must lead every other by more than both deviations together, and every value must
    be of at least two seeds: one run says nothing about what chance does.
    """
    known = [(place, spread) for place, spread in enumerate(spreads) if spread is not None]
    if len(known) < 2:
        return None
    sign = -1 if lower else 1
    best, top = max(known, key=lambda item: sign * item[1].mean)
    for place, spread in known:
        if spread.deviation is None or top.deviation is None:
            return None
        lead = sign * (top.mean - spread.mean)
        if place != best and lead <= top.deviation + spread.deviation:
            return None
    return best


def _key(run: Run) -> str:
    if run.config:
        same: Any = {key: value for key, value in run.config.items() if key not in OWN_TO_A_RUN}
    elif run.result:
        same = [run.task, run.result.get("mechanism"), run.result.get("steps")]
    else:
        same = str(run.folder)
    return json.dumps(same, sort_keys=True)


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
    bases = [_row(group) or _mechanism_name(group[0]) for group in groups]
    flat = [_flat(group[0].config) for group in groups]
    names = []
    for place, base in enumerate(bases):
        # Runs of different tasks are never in one table: the task need not tell them apart.
        task = groups[place][0].task
        alike = [
            flat[other]
            for other in range(len(groups))
            if bases[other] == base and groups[other][0].task == task
        ]
        keys = [key for key in flat[place] if any(key not in f for f in alike)]
        keys += [
            key
            for key in flat[place]
            if key not in keys and any(f[key] != flat[place][key] for f in alike)
        ]
        told = [
            f"{key.rsplit('.', 1)[-1].replace('_', ' ')} {flat[place][key]}"
            for key in keys[:MOST_DIFFERENCES]
        ]
        names.append(", ".join([base, *told]) if len(alike) > 1 else base)
    tasks = {group[0].task for group in groups}
    if len(tasks) > 1:
        names = [f"{name} ({groups[p][0].task or 'no task'})" for p, name in enumerate(names)]
    # What is left alike is told apart by its folder, and if need be by where that lies.
    for tell in (lambda run: run.name, lambda run: str(run.folder)):
        double = {name for name in names if names.count(name) > 1}
        names = [
            f"{name}, {tell(groups[place][0])}" if name in double else name
            for place, name in enumerate(names)
        ]
    return names


def _row(group: Sequence[Run]) -> str:
    """What a table calls all of these runs, if it does."""
    rows = {run.row for run in group}
    return rows.pop() if len(rows) == 1 else ""


def _mechanism_name(run: Run) -> str:
    if "mechanism" in run.config and run.config["mechanism"] is None:
        return "full attention"
    for found in (run.config.get("mechanism"), run.result.get("mechanism")):
        kinds = []
        for layer in found if isinstance(found, list) else [found]:
            kind = layer.get("kind") if isinstance(layer, dict) else layer
            if isinstance(kind, str) and kind and kind not in kinds:
                kinds.append(kind)
        if kinds:
            return " + ".join(spelled(kind) for kind in kinds)
    return run.name


def spelled(kind: str) -> str:
    """The name of a class in plain words: "LearnedWindow" is a learned window."""
    if not re.fullmatch(r"[A-Za-z]+", kind) or kind == "BigBird":
        return kind
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, inner in value.items():
            if name or key not in OWN_TO_A_RUN:
                found |= _flat(inner, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        found = {}
        for place, inner in enumerate(value):
            found |= _flat(inner, f"{name}[{place}]")
        return found
    text = value if isinstance(value, str) else json.dumps(value)
    return {name: text if len(text) <= 24 else text[:23] + "…"}
