"""Run folders: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longspan.report.looks import look_from
from longspan.report.reading import read_run

from .fakes import look_of, write_run


def test_a_whole_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", seed=3, value=41.5, look=look_of()))
    assert run.problems == []
    assert (run.name, run.task, run.seed, run.metric) == ("run", "squad", 3, "f1")
    assert run.number("f1") == 41.5
    assert run.number("pairs") == 1_234_567
    assert len([r for r in run.records if r.kind == "train"]) == 60
    assert [r.metrics["f1"] for r in run.records if r.kind == "dev"][-1] == pytest.approx(41.5)
    first = run.records[0].reach[1]
    assert first is not None
    assert (first.mean, len(first.quantiles), len(first.heads)) == (10.0, 5, 2)
    assert run.look is not None
    assert len(run.look.layers) == 2


def test_a_run_without_looks_is_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert run.look is None
    assert run.problems == []


def test_measures_may_lie_in_an_object_of_their_own(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    line = {"step": 10, "stage": "main", "kind": "dev", "loss": 1.0, "metrics": {"f1": 12.5}}
    (folder / "metrics.jsonl").write_text(json.dumps(line))
    assert read_run(folder).records[0].metrics["f1"] == 12.5


def test_stages_that_count_from_the_beginning_are_strung_together(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = [
        {"step": step, "stage": stage, "kind": "train", "loss": 1.0}
        for stage in ("short", "long")
        for step in (10, 20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [record.at for record in read_run(folder).records] == [10, 20, 30, 40]


def test_stages_that_count_on_are_left_as_they_are(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = [{"step": 10 * n, "stage": "ab"[n > 2], "loss": 1.0} for n in range(1, 5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [record.at for record in read_run(folder).records] == [10, 20, 30, 40]


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl"])
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    (problem,) = read_run(folder).problems
    assert problem.startswith(f"{name} is missing")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "config.json cannot be read: it is not JSON"),
        ("config.json", b"[1]", "config.json cannot be read: it must hold an object"),
        ("result.json", b"\xff\xfe", "result.json cannot be read: it is not UTF-8 (byte 0)"),
        ("result.json", b'{"seed": 1}', "result.json names no metric"),
        (
            "result.json",
            b'{"metric": "f1", "metrics": {"f1": NaN}}',
            "result.json has no finite number for the metric 'f1'",
        ),
        ("metrics.jsonl", b"", "metrics.jsonl is empty"),
        ("looks.json", b"[]", "looks.json cannot be shown: it must hold an object"),
        ("looks.json", b"nothing", "looks.json cannot be shown: it is not JSON"),
        ("looks.json", b"[" * 100_000, "looks.json cannot be shown: it is nested too deeply"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content)
    (problem,) = read_run(folder).problems
    assert problem.startswith(said)


def test_a_line_cut_short_leaves_the_others(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", lines=9)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "lo')
    run = read_run(folder)
    assert len(run.records) == 9
    assert run.problems == ["metrics.jsonl: 1 line is no record with a step (10); left out"]


def test_losses_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", lines=5)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 60, "kind": "train", "loss": NaN}\n')
    run = read_run(folder)
    assert run.records[-1].loss is None
    assert run.problems == ["metrics.jsonl: 1 losses are not finite numbers; left out"]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    assert read_run(tmp_path / "no").problems == ["there is no such folder"]
    (tmp_path / "file").write_text("")
    assert read_run(tmp_path / "file").problems == [
        "this is a file; name the folder that it lies in"
    ]


def test_a_reach_without_end_goes_as_far_as_is_seen() -> None:
    found = look_of(count=9)
    head = found["layers"][0]["heads"][0]
    head["low"][6], head["high"][6], head["reach"][6] = 1, 8, None
    look = look_from(found)
    assert look is not None
    assert look.layers[0].heads[0].reach[6] == 5


@pytest.mark.parametrize("found", [None, look_of(count=9) | {"layers": []}])
def test_looks_that_show_nothing_are_none(found: Any) -> None:
    assert look_from(found) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda look: look.update(tokens=[]), "tokens must be"),
        (lambda look: look.update(layers={}), "layers must be a list"),
        (lambda look: look.update(real=[True]), "real must say true or false for each of 9"),
        (lambda look: look["layers"][1].update(heads=None), r"layers\[1\].heads must be a list"),
        (
            lambda look: look["layers"][0]["heads"][1].update(low=[0]),
            r"layers\[0\].heads\[1\].low must have a number for each of 9 tokens",
        ),
        (
            lambda look: look["layers"][0]["heads"][0]["high"].__setitem__(2, 9),
            r"layers\[0\].heads\[0\]: token 2 sees",
        ),
        (
            lambda look: look["layers"][0]["heads"][0]["reach"].__setitem__(0, float("nan")),
            "reach must hold numbers, got nan",
        ),
    ],
)
def test_looks_that_cannot_be(change: Any, said: str) -> None:
    look = look_of(count=9)
    change(look)
    with pytest.raises(ValueError, match=said):
        look_from(look)
