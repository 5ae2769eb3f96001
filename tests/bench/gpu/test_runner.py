from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from longspan.bench.gpu import ROWS, Result, load
from longspan.bench.gpu.__main__ import main
from longspan.bench.gpu.contenders import Bench
from longspan.bench.gpu.rows import Row
from longspan.bench.gpu.runner import chosen, measure, run_rows, setting
from longspan.measure import child_environment

from .fakes import FakeStopwatch, bench

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")


def row(name: str) -> Row:
    def run(bench: Bench) -> Result:
        if name == "broken":
            raise RuntimeError("out of memory\nby far")
        return Result(row=name, title=name.upper())

    return Row(name=name, title=name.upper(), run=run)


def ticking() -> Iterator[float]:
    return (float(second) for second in count())


def test_every_row_is_kept_when_it_is_done_and_a_broken_one_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    seen: list[str] = []
    ticks = ticking()

    def on_row(row: Row) -> None:
        known = [result.row for result in load(path).results] if path.exists() else []
        seen.append(f"{row.name} after {known}")

    watch = FakeStopwatch()
    report = run_rows(
        [row("a"), row("broken"), row("b")],
        bench(watch),
        {"card": "none"},
        path=path,
        on_row=on_row,
        clock=lambda: next(ticks),
    )
    assert seen == ["a after []", "broken after ['a']", "b after ['a', 'broken']"]
    assert report.results[1].missing == "RuntimeError: out of memory"
    assert [result.seconds for result in report.results] == [1.0, 1.0, 1.0]
    assert load(path) == report
    assert watch.freed == 3


def test_no_row_begins_after_the_budget() -> None:
    ticks = ticking()
    told: list[tuple[str, float]] = []
    report = run_rows(
        [row("a"), row("b"), row("c")],
        bench(),
        {},
        budget=2,
        clock=lambda: next(ticks),
        on_result=lambda result, total: told.append((result.row, total)),
    )
    assert [bool(result.missing) for result in report.results] == [False, True, True]
    assert report.results[1].missing == "not begun: the budget of 2 s was spent"
    assert told == [("a", 2.0), ("b", 3.0), ("c", 4.0)]


def test_what_came_before_the_rows_is_part_of_the_budget() -> None:
    ticks = ticking()
    report = run_rows(
        [row("a"), row("b")], bench(), {}, budget=2, start=-1.5, clock=lambda: next(ticks)
    )
    assert [bool(result.missing) for result in report.results] == [False, True]
    report = run_rows([row("a")], bench(), {}, budget=2, start=-2.0, clock=lambda: 0.0)
    assert report.results[0].missing == "not begun: the budget of 2 s was spent"


def test_rows_are_run_in_the_order_of_their_importance() -> None:
    assert [row.name for row in chosen(["eager", "window-128"])] == ["window-128", "eager"]
    assert [row.name for row in chosen(None)] == list(ROWS)


def test_the_setting_names_what_figures_depend_on() -> None:
    at = setting("NVIDIA H200", False)
    assert at["card"] == "NVIDIA H200" and at["dtype"] == "bfloat16"
    assert set(at["versions"]) == {"longspan", "torch", "triton", "transformers"}


@pytest.mark.gpu
def test_rows_are_measured_from_graphs_on_a_real_device(tmp_path: Path) -> None:
    names = ["window-128", "learned-independent", "launches", "eager", "lengths"]
    report = measure(names, quick=True, peers=False, path=tmp_path / "bench.json")
    assert [result.missing for result in report.results] == [""] * len(names)
    for result in report.results[:2]:
        (entry,) = result.entries
        assert {taken.how for taken in entry.passes.values()} == {"graph"}, entry
    for result in report.results[2:]:
        assert all(figure.value is not None for figure in result.figures), result
    saved = load(tmp_path / "bench.json")
    assert [result.entries for result in saved.results] == [r.entries for r in report.results]


def test_the_module_says_in_one_line_that_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for more in ([], ["--tune"], ["--only", "eager", "lengths", "--quick", "--no-peers"]):
        assert main(["-o", str(tmp_path), *more]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        (line,) = told.err.splitlines()
        assert line.startswith("Error: this benchmark needs an NVIDIA GPU")
    assert main(["-o", str(tmp_path), "--only", "windo"]) == 2
    assert "there is no row 'windo'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_module_needs_nothing_but_torch(tmp_path: Path) -> None:
    """Neither table nor plots: those are made from the record, where there is rich."""
    code = (
        "import sys\n"
        "for name in ('rich', 'typer', 'matplotlib', 'transformers', 'triton'):\n"
        "    sys.modules[name] = None\n"
        "from longspan.bench.gpu.__main__ import main\n"
        f"print(main(['-o', {str(tmp_path)!r}, '--only', 'windo']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert found.stdout == "2\n", found.stderr
    assert "there is no row 'windo'" in found.stderr
