"""Files that tasks learn from in a moment, and records of new input for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longspan.training import RunConfig, Stage, train

__all__ = ["TASKS", "data_of", "trained_on"]

PLACES = (
    "Rome",
    "Oslo",
    "Kyiv",
    "Lima",
    "Bonn",
    "Bern",
    "Cork",
    "York",
    "Nice",
    "Graz",
    "Ulm",
    "Pau",
)
SIZES = {"vocabulary": 300, "length": 48}

# For each task a file to learn from, settings, records of new input, and what is predicted.
SQUAD = "".join(
    json.dumps({"question": f"Who is {n}?", "context": f"{n} is {place}.", "answer": place}) + "\n"
    for n, place in enumerate(PLACES)
)
TASKS: dict[str, tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = {
    "squad": (
        "train.jsonl",
        SQUAD,
        {**SIZES, "question_length": 12, "stride": 12},
        [{"question": f"Who is {n}?", "context": f"{n} is Ada. " * (n + 1)} for n in range(20)],
    ),
    "classify": (
        "train.tsv",
        "text\tlabel\n"
        + "".join(f"{place} is far\tfar\n{place} is near\tnear\n" for place in PLACES),
        SIZES,
        [{"text": f"Is it {place}?", "label": "kept"} for place in PLACES],
    ),
    "tag": (
        "train.conll",
        "".join(f"In O\n{place} B-LOC\nhe O\nslept O\n\n" for place in PLACES),
        SIZES,
        [{"words": ["In", place, *["he", "slept", "long"] * 9]} for place in PLACES],
    ),
    "translate": (
        "train.tsv",
        "".join(f"Er ist in {place}\tHe is in {place}\n" for place in PLACES),
        SIZES,
        [{"source": f"Sie ist in {place}"} for place in PLACES],
    ),
    "birthplaces": (
        "train.tsv",
        "".join(f"Where was {place[::-1]} born?\t{place}\n" for place in PLACES),
        {"length": 48},
        [{"question": f"Where was {place} born?"} for place in PLACES],
    ),
}


def data_of(name: str, folder: Path) -> Path:
    """The task's file, written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file, content, *_ = TASKS[name]
    (folder / file).write_text(content)
    return folder / file


def trained_on(name: str, folder: Path) -> Path:
    """The folder of a run that has learned next to nothing."""
    config = RunConfig(
        task={"name": name, "data": str(data_of(name, folder)), "settings": TASKS[name][2]},
        model={"width": 16, "layers": 1, "heads": 2},
        mechanism={"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8},
        stages=[Stage(steps=3, batch=4, learning_rate=1e-2)],
        output=str(folder / "run"),
    )
    train(config)
    return folder / "run"
