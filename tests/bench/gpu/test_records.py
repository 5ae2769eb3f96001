from __future__ import annotations

import json
from pathlib import Path

import pytest

from longspan.bench.gpu import Entry, Figure, Need, Report, Result, Taken, load, merged, save


def report(card: str = "NVIDIA H200", row: str = "window-128") -> Report:
    return Report(
        setting={"card": card, "quick": False, "versions": {"torch": "2.11"}},
        results=[
            Result(
                row=row,
                title="a window",
                size={"batch": 4, "heads": 16, "length": 4096, "head_dim": 64},
                pairs=12,
                needs={"forward": Need(8, 9, 1.0, 2.0), "backward": Need(16, 20)},
                entries=[
                    Entry(
                        name="longspan",
                        passes={"forward": Taken(70.0, 69.0, 71.0, 400)},
                        note="blocks",
                    ),
                    Entry(name="FlexAttention", missing="not there"),
                ],
                figures=[Figure(what="forward", unit="×", value=1.8, target=1.75, stretch=2.2)],
                seconds=12.5,
            ),
            Result(row="other", title="left out", missing="no time"),
        ],
    )


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.json"
    save(report(), path)
    assert load(path) == report()
    assert json.loads(path.read_text())["rows"][0]["figures"][0]["met"] is True
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text('{"setting": {}, "outcomes": []}')
    with pytest.raises(ValueError, match="was not written by 'longspan bench gpu'"):
        load(path)


def test_reports_of_one_card_are_merged_and_the_later_row_is_taken() -> None:
    first, second = report(), report(row="eager")
    newer = Result(row="other", title="now it ran")
    both = merged([first, second, Report(setting=first.setting, results=[newer])])
    assert [r.row for r in both.results] == ["window-128", "other", "eager"]
    assert both.result("other") == newer
    lost = Result(row="window-128", title="a window", missing="no time")
    assert merged([first, Report(setting=first.setting, results=[lost])]) == first
    with pytest.raises(ValueError, match="different cards: NVIDIA A100, NVIDIA H200"):
        merged([first, report(card="NVIDIA A100")])


@pytest.mark.parametrize(
    ("value", "at_least", "met", "stretched"),
    [
        (1.8, True, True, False),
        (2.2, True, True, True),
        (1.7, True, False, False),
        (1.7, False, True, True),
        (1.8, False, False, True),
        (None, True, None, None),
    ],
)
def test_targets(
    value: float | None, at_least: bool, met: bool | None, stretched: bool | None
) -> None:
    figure = Figure(what="", unit="×", value=value, target=1.75, stretch=2.2, at_least=at_least)
    assert figure.met is met
    assert figure.stretched is stretched


def test_a_time_is_a_median_with_its_quartiles() -> None:
    assert Taken.of([5.0, 1.0, 2.0, 4.0, 3.0]) == (3.0, 2.0, 4.0, 5, "graph")
    assert Taken.of([7.0], "eager") == (7.0, 7.0, 7.0, 1, "eager")


def test_the_floor_is_the_longer_of_both_times() -> None:
    assert Need(8, 9, 1.0, 2.0).time == 2.0
    assert Need(8, 9).time is None
