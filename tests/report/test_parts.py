"""The parts of a page: numbers, axes, thinning, setups, tokens, markup."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from longspan.report.charts import Line, line_chart
from longspan.report.document import _answer, _packed, _packed_head, shown_tokens
from longspan.report.figures import _measure as measure_of
from longspan.report.looks import Look, look_from
from longspan.report.markup import Markup, embedded_json, joined, tag
from longspan.report.numbers import compact, duration, memory, plain, with_spread
from longspan.report.reading import Record, read_run
from longspan.report.scales import Scale, scale_for, thin
from longspan.report.setups import Spread, setups_of, stands_apart

from .fakes import look_of, write_run
from .pages import parsed


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (plain(None), "–"),
        (plain(float("nan")), "not a number"),
        (plain(0.0), "0"),
        (plain(1234.5), "1,234"),
        (plain(0.012345), "0.0123"),
        (plain(100.0), "100"),
        (plain(0.000001234), "1.23e-06"),
        (with_spread(41.5666, 0.404), "41.57 ± 0.40"),
        (with_spread(1234.0, 56.0), "1,234 ± 56"),
        (with_spread(41.5, None), "41.5"),
        (with_spread(41.5, 0.0), "41.5 ± 0"),
        (compact(999.0), "999"),
        (compact(1234.0), "1.23 k"),
        (compact(999_600.0), "1 M"),
        (compact(2.5e9), "2.5 G"),
        (memory(300 * 2**20), "300 MiB"),
        (memory(1.5 * 2**30), "1.5 GiB"),
        (duration(59.0), "59 s"),
        (duration(59.97), "1 min 00 s"),
        (duration(3725.0), "1 h 02 min"),
    ],
)
def test_numbers(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_an_axis_has_round_ticks_inside() -> None:
    scale = Scale(0.13, 0.87, 0, 100)
    assert [text for _, text in scale.labels(5)] == ["0.2", "0.4", "0.6", "0.8"]
    assert scale(0.13) == 0
    assert scale(0.87) == pytest.approx(100)


def test_an_axis_is_logarithmic_where_values_are_far_apart() -> None:
    far, near = scale_for([1, 1e6], 0, 1), scale_for([1, 10], 0, 1)
    assert (far.log, near.log) == (True, False)
    assert far(1e3) == pytest.approx(0.5)
    assert [text for _, text in far.labels(4)] == ["1", "100", "10 k", "1 M"]


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0], [-3.0, -3.0], [1e-30, 2e-30]])
def test_an_axis_of_few_values_has_room(values: list[float]) -> None:
    scale = scale_for(values, 0, 100)
    assert scale.low < scale.high
    assert all(0 < scale(value) < 100 for value in values)
    assert len(scale.ticks()) >= 2


def test_thinning_keeps_ends_and_peaks_and_what_was_measured() -> None:
    points = [(float(x), float(x % 7)) for x in range(5000)]
    points[1234] = (1234.0, 99.0)
    points[4321] = (4321.0, -99.0)
    kept = thin(points, 100)
    assert len(kept) <= 100
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    assert {points[0], points[-1], points[1234], points[4321]} <= set(kept)
    assert thin(points[:100], 100) == points[:100]


def test_a_curve_carries_its_values() -> None:
    svg = parsed(
        line_chart(
            [Line("<a>", 9, [(0, 0.5), (10, 0.25)])], x_label="step", y_label="loss", about="x"
        )
    ).one("svg")
    assert svg.attributes["data-lines"] == '[["<a>",1,[0,10],[0.5,0.25]]]'
    assert len(svg.all("path", class_="line c1")) == 1


def test_markup_escapes_all_but_markup() -> None:
    assert tag("p", "<b> & '", Markup("<i>"), class_='"x"', hidden=True, id=None) == (
        '<p class="&quot;x&quot;" hidden>&lt;b&gt; &amp; &#x27;<i></p>'
    )
    assert joined(["<", tag("br")], " & ") == "&lt; &amp; <br>"
    assert embedded_json(["</script>", "&"]) == '["\\u003c/script\\u003e","\\u0026"]'


def test_the_best_must_stand_apart() -> None:
    apart = [Spread(40.0, 0.5, 3), Spread(42.0, 0.5, 3), Spread(41.0, 0.4, 3)]
    assert stands_apart(apart, lower=False) == 1
    assert stands_apart(apart, lower=True) == 0
    near = [Spread(41.0, 0.5, 3), Spread(42.0, 0.5, 3)]
    assert stands_apart(near, lower=False) is None
    assert stands_apart([Spread(1.0, None, 1), Spread(9.0, 0.1, 3)], lower=False) is None
    assert stands_apart([Spread(1.0, 0.1, 3), None], lower=False) is None
    assert stands_apart([Spread(1.0, 0.0, 3), Spread(1.0, 0.0, 3)], lower=False) is None


def names(tmp_path: Path, *runs: dict[str, Any]) -> list[str]:
    folders = [write_run(tmp_path / f"r{place}", **run) for place, run in enumerate(runs)]
    return [setup.name for setup in setups_of([read_run(folder) for folder in folders])]


def test_seeds_of_one_setup_are_together(tmp_path: Path) -> None:
    found = [read_run(write_run(tmp_path / f"r{seed}", seed=seed)) for seed in (0, 1)]
    (setup,) = setups_of(found)
    assert setup.name == "learned window"
    assert [setup.run_name(run) for run in found] == [
        "learned window, seed 0",
        "learned window, seed 1",
    ]


def test_setups_are_named_by_what_differs(tmp_path: Path) -> None:
    narrow, wide = {"window": 64, "heads": 2}, {"window": 128, "heads": 2}
    assert names(
        tmp_path,
        {"kind": "SlidingWindow", "settings": narrow},
        {"kind": "SlidingWindow", "settings": wide},
        {"kind": "BigBird"},
    ) == ["sliding window, window 64", "sliding window, window 128", "BigBird"]


def test_setups_are_called_as_in_tables(tmp_path: Path) -> None:
    def noted(name: str, rows: list[Any], **options: Any) -> Path:
        folder = write_run(tmp_path / name, **options)
        (folder / "row.json").write_text(json.dumps(rows))
        return folder

    own = {"title": "Windows", "order": 0, "row": "fixed 16", "published": None}
    folders = [
        noted("a", [own], seed=0),
        noted("b", [own], seed=1),
        noted("c", [own, {**own, "title": "Others"}], settings={"left": 9}),
        noted("d", [own, {**own, "row": "a window"}], settings={"left": 10}),
    ]
    runs = [read_run(folder) for folder in folders]
    assert not any(run.problems for run in runs)
    # Of one name they are told apart, and of two they have none.
    found = [setup.name for setup in setups_of(runs)]
    assert found[2] == "learned window" and len(set(found)) == 3
    assert all(name.startswith("fixed 16") for name in found[:2])
    assert [setup.name for setup in setups_of(runs[:2])] == ["fixed 16"]


@pytest.mark.parametrize("content", ["", "7", "[{}]", '[{"row": 3}]', "[[]]"])
def test_rows_that_cannot_be_read_are_said(content: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "row.json").write_text(content)
    run = read_run(folder)
    assert run.row == "" and run.problems[0].startswith("row.json cannot be shown")


def test_a_setup_without_a_mechanism_is_full_attention(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text()) | {"mechanism": None}
    (folder / "config.json").write_text(json.dumps(config))
    (setup,) = setups_of([read_run(folder)])
    assert setup.name == "full attention"


def test_setups_of_different_tasks_say_so(tmp_path: Path) -> None:
    assert names(tmp_path, {}, {"task": "bytes", "metric": "bits"}) == [
        "learned window (squad)",
        "learned window (bytes)",
    ]


def test_setups_that_differ_in_many_ways_still_have_names_of_their_own(tmp_path: Path) -> None:
    many = [{f"a{k}": 0 for k in range(9)} for _ in range(2)]
    many[1]["a8"] = 1
    far = {f"a{k}": k + 1 for k in range(9)}
    found = names(tmp_path, *({"settings": s} for s in (*many, far)))
    assert len(set(found)) == 3


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        (["Ġthe", "Ġcat", "s", "Ċ"], [" the", " cat", "s", "↵\n"]),
        (["▁the", "cat"], [" the", "cat"]),
        (["the", "cat", "##s"], [" the", " cat", "s"]),
        (["the", "cats"], [" the", " cats"]),
        (list("a b\n\t"), ["a", " ", "b", "↵\n", "⇥"]),
        (["the ", "cat"], ["the ", "cat"]),
        (["\u202e", "\x00", ""], ["‹202E›", "‹0000›", "∅"]),
        (["<script>", "</script>"], [" <script>", " </script>"]),
    ],
)
def test_tokens_are_shown_as_a_reader_expects(tokens: list[str], wanted: list[str]) -> None:
    assert shown_tokens(tokens) == wanted


def whole(found: dict[str, Any]) -> Look:
    look = look_from(found)
    assert look is not None
    return look


def unpacked(packed: int | str, count: int) -> list[int]:
    if isinstance(packed, int):
        return [packed] * count
    return list(struct.unpack(f"<{count}h", base64.b64decode(packed)))


def test_intervals_are_stored_only_where_the_reach_does_not_give_them() -> None:
    found = look_of(count=40)
    head = whole(found).layers[0].heads[0]
    packed = _packed_head(head, 40, 40)
    assert set(packed) == {"reach", "unit"}
    units = unpacked(packed["reach"], 40)
    assert [u * packed["unit"] for u in units] == pytest.approx(head.reach, abs=0.1)

    found["layers"][0]["heads"][0]["high"] = list(range(40))  # causal
    packed = _packed_head(whole(found).layers[0].heads[0], 40, 40)
    assert packed["right"] == 0
    assert "left" not in packed


def test_long_reaches_fit_by_a_coarser_unit() -> None:
    found = look_of(count=4)
    found["layers"][0]["heads"][0]["reach"] = [1e6, 5e5, 0.0, 1.0]
    packed = _packed_head(whole(found).layers[0].heads[0], 4, 4)
    units = unpacked(packed["reach"], 4)
    assert [u * packed["unit"] for u in units] == pytest.approx([1e6, 5e5, 0, 1], abs=31)
    assert _packed([3, 3, 3]) == 3


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (None, None),
        ({}, None),
        ({"text": "b c", "score": 1.23456}, {"text": "b c", "rest": ["score 1.235"]}),
        ({"start": 1, "end": 2}, {"start": 1, "end": 2, "text": "b c", "rest": []}),
        ({"start": 2, "end": 1}, {"rest": ["start 2", "end 1"]}),
        ({"start": 0, "end": 9}, {"rest": ["start 0", "end 9"]}),
        ({"start": True, "end": "x", "all": [1]}, {"rest": ["start True", "end x"]}),
    ],
)
def test_answers(answer: dict[str, Any] | None, wanted: dict[str, Any] | None) -> None:
    assert _answer(answer, ["a", " b", " c"]) == wanted


def test_a_curve_is_of_one_measure() -> None:
    """A stage that is measured by another has no points in it."""

    def record(**metrics: float) -> Record:
        return Record(at=1, stage="a", kind="dev", loss=2.0, metrics=metrics)

    assert measure_of(record(exact_match=0.5, metric=0.5), "exact_match") == 0.5
    assert measure_of(record(bits=4.5, metric=4.5), "exact_match") is None
    assert measure_of(record(metric=0.25), "exact_match") == 0.25
    assert measure_of(record(), "loss") == 2.0


def test_a_run_that_has_not_ended_hides_no_others(tmp_path: Path) -> None:
    """Its last stage has another task than the run."""
    folders = [write_run(tmp_path / f"r{n}", task="classify", seed=n) for n in range(3)]
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        config["task"] = {"name": "masked"}
        config["stages"] = [{"name": "one"}, {"name": "two", "task": {"name": "classify"}}]
        (folder / "config.json").write_text(json.dumps(config))
    (folders[0] / "result.json").unlink()
    (setup,) = setups_of([read_run(folder) for folder in folders])
    assert setup.task == "classify" and setup.metric
