from __future__ import annotations

import json
from pathlib import Path

import pytest

from longspan.bench import Figure, Outcome, Report, Sample, load, save

SAMPLE = Sample(2.0, 1.0, 3.0, 5)


def figure(
    values: tuple[float | None, float | None],
    targets: tuple[float | None, float | None] = (None, None),
    at_least: bool = False,
) -> Figure:
    return Figure(
        problem="p", what="w", unit="×", values=values, targets=targets, at_least=at_least
    )


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (figure((1.0, 2.0)), None),
        (figure((1.0, 2.0), (1.0, 2.0)), True),
        (figure((1.0, 2.1), (1.0, 2.0)), False),
        (figure((1.0, 2.0), (1.0, 2.0), at_least=True), True),
        (figure((0.9, 2.0), (1.0, 2.0), at_least=True), False),
        (figure((9.0, 2.0), (None, 2.0)), True),
        (figure((None, None), (1.0, 2.0)), None),
    ],
)
def test_a_target_is_met_when_both_passes_meet_it(found: Figure, met: bool | None) -> None:
    assert found.met is met


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    report = Report(
        setting={"threads": 1, "processor": "α"},
        outcomes=[
            Outcome(problem="p", name="a", length=3, forward=SAMPLE, both=SAMPLE, pairs=9),
            Outcome(problem="p", name="b", forward=SAMPLE, flops=4),
            Outcome(problem="p", name="c", peak=1024),
            Outcome(problem="p", name="d", missing="not there"),
        ],
        figures=[figure((1.0, None), (2.0, None)), figure((None, None))],
    )
    path = tmp_path / "new" / "bench.json"
    save(report, path)
    assert load(path) == report
    assert json.loads(path.read_text())["figures"][0]["met"] is True
    # Written aside, and nothing of that is left.
    assert list(path.parent.iterdir()) == [path]


def test_a_broken_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        save(Report(setting={"not for JSON": object()}), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
