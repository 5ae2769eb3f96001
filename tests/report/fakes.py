"""Run folders as training writes them, made up: small, quick, and the same every time."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

TEXT = (
    "Who first saw the comet ? [SEP] The comet was first seen in the spring of 1682 by a watchman "
    "of the harbour , who took it for a burning ship . He rang the bell , and half of the town "
    "came down to the quay . Only at dawn , when the light had not moved , did they send for the "
    "astronomer . She had been awake all night , had drawn its tail upon three sheets of paper , "
    "and had written to her sister that the sky had a visitor . Her letter is the oldest record "
    "that we have of it . The watchman , whose name nobody wrote down , was fined for the bell ."
)
QUESTION = 7  # tokens of the question, with the mark after it


def tokens_of(count: int) -> list[str]:
    words = TEXT.split()
    return [words[place % len(words)] for place in range(count)]


def look_of(
    *,
    count: int = 120,
    layers: int = 2,
    heads: int = 2,
    learned: bool = True,
    tokens: list[str] | None = None,
) -> dict[str, Any]:
    """What tokens see: learned windows that differ from token to token, or one fixed window."""
    tokens = tokens_of(count) if tokens is None else tokens
    count = len(tokens)
    chance = random.Random(1)
    found = []
    for layer in range(layers):
        own = []
        for head in range(heads):
            if learned:
                wide = 4.0 * (layer + 1) * (head + 1)
                reach = [round(wide * math.exp(chance.gauss(0, 0.6)), 2) for _ in tokens]
            else:
                reach = [8.0] * count
            own.append(
                {
                    "low": [max(0, i - math.floor(r)) for i, r in enumerate(reach)],
                    "high": [min(count - 1, i + math.floor(r)) for i, r in enumerate(reach)],
                    "reach": reach,
                }
            )
        name = "LearnedWindow" if learned else "SlidingWindow"
        found.append({"mechanism": name, "heads": own})
    return {
        "task": "squad",
        "tokens": tokens,
        "real": [True] * count,
        "question": [place < QUESTION for place in range(count)],
        "global": [place < QUESTION for place in range(count)],
        "layers": found,
        "answer": {"start": 18, "end": 19, "score": 3.5},
    }


def study_of(*, layers: int = 2, heads: int = 2, answers: bool = True) -> dict[str, Any]:
    """What windows have learned, as `longspan reaches` writes it."""

    def means(levels: list[str]) -> dict[str, Any]:
        counts = [10 * (n + 1) for n in range(len(levels))]
        counts[1] = 0
        rows = [[5.0 + n + layer for n in range(len(levels))] for layer in range(layers)]
        for row in rows:
            row[1] = None  # type: ignore[call-overload]
        return {"levels": levels, "tokens": counts, "mean": rows[0], "layers": rows}

    def named(text: str, mean: float) -> dict[str, Any]:
        return {"token": text, "mean": mean, "tokens": 12}

    spread = {"mean": 8.0, "quantiles": [1.0, 4.0, 7.0, 9.0, 32.0], "at_most": 0.01}
    by = {"position": means([f"{5 * n}–{5 * n + 5} %" for n in range(20)])}
    if answers:
        by |= {
            "kind": means(["mark", "question", "number"]),
            "distance": means(["0", "1–2", "3–4"]),
        }
    shares = {"head": 0.5, "place": 0.25, "token": None}
    tokens = {"far": [named(" <far>", 20.5)], "near": [named("near|", 1.25)]}
    return {
        "task": "squad",
        "split": "dev",
        "examples": 64,
        "tokens": 1234,
        "layers": [
            {"layer": n, **spread, "max_reach": 32, "heads": [dict(spread) for _ in range(heads)]}
            for n in range(layers)
        ],
        "by": by,
        "explained": {"all": {"layer": 0.125, **shares}, "layers": [dict(shares)] * layers},
        "named": {"all": tokens, "layers": [tokens] * layers},
    }


def write_run(
    folder: Path,
    *,
    kind: str = "LearnedWindow",
    seed: int = 0,
    value: float = 40.0,
    seconds: float = 60.0,
    lines: int = 60,
    layers: int = 2,
    heads: int = 2,
    settings: dict[str, Any] | None = None,
    look: dict[str, Any] | None = None,
    study: dict[str, Any] | None = None,
    task: str = "squad",
    metric: str = "f1",
) -> Path:
    """Writes a whole run folder, and returns it."""
    folder.mkdir(parents=True)
    learned = kind == "LearnedWindow"
    chance = random.Random(seed)
    mechanism = {"kind": kind, **(settings or {})}
    config = {
        "task": {"name": task, "data": None, "settings": {}},
        "model": {"layers": layers, "heads": heads, "width": 64},
        "mechanism": mechanism,
        "stages": [{"name": "main", "steps": 10 * lines, "length": 512}],
        "seed": seed,
        "precision": "float32",
        "output": str(folder),
    }
    result = {
        "task": task,
        "mechanism": mechanism,
        "metrics": {metric: value, "exact_match": value - 9},
        "metric": metric,
        "pairs": 1_234_567 if learned else 1_500_000,
        "tokens_per_second": 5000.0 + seed,
        "peak_memory": 300 * 2**20,
        "seconds": seconds,
        "parameters": 2_345_678,
        "seed": seed,
        "steps": 10 * lines,
        "versions": {"longspan": "0.1.0", "torch": "2.13"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    if look is not None:
        (folder / "looks.json").write_text(json.dumps(look))
    if study is not None:
        (folder / "reaches.json").write_text(json.dumps(study))
    written = []
    for place in range(lines):
        step = 10 * (place + 1)
        line: dict[str, Any] = {
            "step": step,
            "stage": "main",
            "kind": "train",
            "loss": 4 * math.exp(-place / lines * 2) + 0.15 * chance.random(),
            "tokens_per_second": 5000.0,
            "peak_memory": 300 * 2**20,
            "learning_rate": 1e-3,
            "seconds": seconds * (place + 1) / lines,
            "pairs": 1000 * step,
        }
        if learned:
            line["reach"] = reach_of(place / lines, layers, heads)
        written.append(line)
        if (place + 1) % 10 == 0:
            share = (place + 1) / lines
            measured = value * (1 - math.exp(-3 * share)) / (1 - math.exp(-3))
            written.append(
                {"step": step, "stage": "main", "kind": "dev", "loss": 2.0, metric: measured}
            )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    return folder


def reach_of(share: float, layers: int, heads: int) -> dict[str, Any]:
    means = [10.0 + (4.0 * layer + 2) * math.sin(3 * share) for layer in range(layers)]
    return {
        "layer": [
            {"mean": m, "quantiles": [0.2 * m, 0.6 * m, 0.9 * m, 1.3 * m, 2.5 * m]} for m in means
        ],
        "heads": [[m * (0.7 + 0.6 * h / max(1, heads - 1)) for h in range(heads)] for m in means],
    }


def six_runs(
    root: Path, *, lines: int = 60, layers: int = 2, heads: int = 2, count: int = 120
) -> list[Path]:
    """Two mechanisms, three seeds each; the learned window is clearly the better one."""
    runs = []
    for kind, values in (
        ("SlidingWindow", (38.0, 38.5, 37.6)),
        ("LearnedWindow", (41.2, 42.0, 41.5)),
    ):
        learned = kind == "LearnedWindow"
        for seed, value in enumerate(values):
            runs.append(
                write_run(
                    root / f"{kind.lower()}-{seed}",
                    kind=kind,
                    seed=seed,
                    value=value,
                    seconds=80.0 + 3 * seed if learned else 62.0 + 2 * seed,
                    lines=lines,
                    layers=layers,
                    heads=heads,
                    look=look_of(count=count, layers=layers, heads=heads, learned=learned),
                )
            )
    return runs
