from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from longspan.bench import run
from longspan.bench.contenders import Contender, Unavailable, Work
from longspan.bench.plots import save_plots
from longspan.bench.problem import Problem, Results
from longspan.bench.runner import QUICK, measure
from longspan.bench.table import show
from longspan.measure import Size

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")

TINY = Size(heads=1, length=4, head_dim=2)


def tiny(**options: bool) -> Problem:
    seen: list[int] = []

    def make(size: Size) -> Work:
        x = torch.ones(3, requires_grad=True)

        def forward() -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return 2 * x

        return Work(forward=forward, leaves=(x,), pairs=5, repeats=2)

    def gone(size: Size) -> Work:
        raise Unavailable("gone")

    return Problem(
        name="tiny",
        title="tiny",
        ours=(Contender(name="a", size=TINY, make=make, threads=2),),
        peers=(
            Contender(name="b", size=TINY, make=make, both=False, group="other"),
            Contender(name="c", size=TINY, make=gone),
        ),
        judge=lambda results: [
            results.figure("a", "×", results.ratio("a", "a"), note=str(sorted(set(seen))))
        ],
        **options,
    )


def test_contenders_are_timed_with_their_own_threads() -> None:
    problem = tiny()
    found = {one.name: one for one in measure(problem, True, 1, QUICK, lambda name: None)}
    assert found["a"].forward is not None and found["a"].both is not None
    assert found["a"].pairs == 5 and found["a"].length == 4
    assert found["b"].forward is not None and found["b"].both is None
    assert found["c"].missing == "gone" and found["c"].forward is None
    assert torch.get_num_threads() == 1
    (figure,) = problem.judge(Results("tiny", found.values()))
    assert figure.values == (1.0, 1.0)
    assert figure.note == "[1, 2]"


def test_an_unknown_problem_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no problem 'windo': choose one of window, "):
        run(["windo"])


def test_short_inputs_are_shown_and_drawn(tmp_path: Path) -> None:
    titles: list[str] = []
    report = run(["window", "lengths"], quick=True, on_problem=titles.append)
    assert titles == ["a window of 128 each side", "time against length"]
    assert report.setting["quick"] and report.setting["threads"] == 1
    console = Console(width=150, record=True, file=(tmp_path / "out").open("w"))
    show(report, console)
    console.file.close()
    text = console.export_text()
    assert "window 128 against local-attention" in text
    assert "≥ 2.8 / 2.3" in text
    assert "window 128 is faster than dense SDPA from" in text
    saved = save_plots(report, tmp_path)
    assert [path.name for path in saved] == ["lengths.svg", "window.svg"]
    assert all(path.read_bytes().startswith(b"<?xml") for path in saved)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_memory_is_at_least_what_is_given_back() -> None:
    report = run(["memory"], quick=True)
    (ours,) = [figure for figure in report.figures if figure.targets != (None, None)]
    assert ours.values[0] is None
    assert ours.values[1] is not None and 0.9 < ours.values[1] < 20
