"""Table, lines and plots of a record that has everything in it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from longspan.bench.gpu import Entry, Figure, Need, Report, Result, Taken, load, save
from longspan.bench.gpu.markdown import figures_table
from longspan.bench.gpu.peers import FLEX_SMALL
from longspan.bench.gpu.plots import save_plots
from longspan.bench.gpu.table import show
from longspan.bench.gpu.text import lines_of
from tests.test_cli import fails, longspan


def taken(median: float, how: str = "graph") -> Taken:
    return Taken(median, median - 1, median + 1, 40, how)  # type: ignore[arg-type]


REPORT = Report(
    setting={
        "card": "NVIDIA H200",
        "quick": False,
        "dtype": "bfloat16",
        "versions": {"torch": "2.11.0", "transformers": None},
    },
    results=[
        Result(
            row="window-128",
            title="window of 128",
            size={"batch": 4, "heads": 16, "length": 4096, "head_dim": 64},
            pairs=67371008,
            needs={
                "forward": Need(134217728, 17246978048, 31.4, 21.8),
                "backward": Need(268435456, 43117445120, 62.9, 54.6),
            },
            entries=[
                Entry(name="longspan", passes={"forward": taken(62.8), "backward": taken(190.0)}),
                Entry(
                    name="FlexAttention",
                    passes={
                        "forward": taken(122.4),
                        "backward": taken(366.0, "eager"),
                        "mask": taken(135.0),
                    },
                    note="one block mask for both passes",
                ),
                Entry(
                    name=FLEX_SMALL, passes={"forward": taken(99.4)}, note="its backward refuses"
                ),
                Entry(name="FlashAttention-2", missing="RuntimeError: not here"),
            ],
            figures=[
                Figure(
                    what="forward, faster than FlexAttention",
                    unit="×",
                    value=1.949,
                    target=1.75,
                    stretch=2.2,
                ),
                Figure(
                    what="backward, faster than FlexAttention",
                    unit="×",
                    value=1.8,
                    target=1.9,
                    stretch=2.3,
                    note="theirs: eager, ours: graph",
                ),
                Figure(what=f"forward, faster than {FLEX_SMALL}", unit="×", value=1.583),
            ],
            seconds=41.0,
        ),
        Result(
            row="lengths",
            title="time per token",
            entries=[
                Entry(name="B=16 N=4096", passes={"forward": taken(250), "backward": taken(700)}),
                Entry(name="B=1 N=65536", passes={"forward": taken(255), "backward": taken(730)}),
            ],
            figures=[Figure(what="apart", unit="%", value=4.3, target=15, at_least=False)],
        ),
        Result(
            row="first-call",
            title="first call",
            entries=[Entry(name="window", passes={"forward": taken(4.5e6, "clock")})],
        ),
        Result(row="bigbird", title="BigBird", missing="not begun: the budget of 9 s was spent"),
    ],
)


def test_the_table_has_figures_targets_and_floors() -> None:
    out = io.StringIO()
    show(REPORT, Console(file=out, width=170))
    text = out.getvalue()
    for part in (
        "NVIDIA H200, bfloat16; torch 2.11.0, transformers not installed",
        "1.95 ×  ≥ 1.75 (2.2) yes",
        "1.80 ×  ≥ 1.9 (2.3) no",
        "62.8     61.8–63.8 31.4 bytes   50% graph",
        "one block mask for both passes",
        "1.58 ×",
        "its backward refuses",
        "RuntimeError: not here",
        "window-128 forward 67.4 M 134.2 17.2 31.4 21.8",
        "first-call window forward 4.50 s clock",
        "bigbird: not begun",
        "2 of 3 targets met.",
    ):
        assert " ".join(part.split()) in " ".join(text.split()), part


def test_a_quick_look_is_not_judged() -> None:
    out = io.StringIO()
    show(
        Report(setting=REPORT.setting | {"quick": True}, results=REPORT.results), Console(file=out)
    )
    assert "targets met" not in out.getvalue()
    assert "A quick look" in out.getvalue()


def test_a_row_in_plain_lines() -> None:
    lines = lines_of(REPORT.results[0])
    assert lines[0] == "window-128: window of 128 [41 s]"
    assert lines_of(REPORT.results[0], 96.4)[0] == "window-128: window of 128 [41 s, 96 s so far]"
    assert lines[1] == (
        "  forward needs 134.2 MB, 17.2 Gflop; 31.4 µs and 21.8 µs at the card's rates"
    )
    assert (
        "  longspan: forward 62.8 (61.8–63.8) µs graph; backward 190.0 (189.0–191.0) µs graph"
        in lines
    )
    assert "  FlashAttention-2: missing: RuntimeError: not here" in lines
    assert "  → forward, faster than FlexAttention: 1.95 ×; ≥ 1.75 (2.2) yes" in lines
    assert lines_of(REPORT.results[2])[1] == "  window: forward 4.50 s"
    assert "budget of 9 s" in lines_of(REPORT.results[3])[1]


def test_the_plots_are_those_that_the_record_has_figures_for(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    saved = save_plots(REPORT, tmp_path)
    assert [path.name for path in saved] == ["ratios.svg", "per_token.svg", "floor.svg"]
    assert all(path.read_bytes().startswith(b"<?xml") for path in saved)
    alone = Report(setting=REPORT.setting, results=REPORT.results[1:2])
    assert [path.name for path in save_plots(alone, tmp_path)] == ["per_token.svg"]
    assert save_plots(Report(setting=REPORT.setting), tmp_path) == []


def test_smaller_blocks_have_a_bar_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with_them = (save_plots(REPORT, tmp_path)[0]).read_text()
    without = replace(REPORT.results[0], figures=REPORT.results[0].figures[:2])
    save_plots(Report(setting=REPORT.setting, results=[without]), tmp_path)
    assert FLEX_SMALL in with_them and "1.58" in with_them
    assert FLEX_SMALL not in (tmp_path / "ratios.svg").read_text()


def test_the_table_for_the_documentation() -> None:
    text = figures_table(REPORT)
    assert "do not edit" in text.splitlines()[0]
    assert "NVIDIA H200, bfloat16; torch 2.11.0." in text
    assert "| `window-128` | forward | 62.8 | 122.4 | 99.4 |  | 31.4 |" in text
    assert "| `window-128` | backward | 190.0 | 366.0 (eager) |  |  | 62.9 |" in text
    assert (
        "| `window-128` | forward, faster than FlexAttention | 1.95 × | ≥ 1.75 (2.2) | yes |"
        in text
    )
    assert f"| `window-128` | forward, faster than {FLEX_SMALL} | 1.58 × |  |  |" in text
    assert "- `bigbird`: not begun: the budget of 9 s was spent" in text
    assert f"- {FLEX_SMALL}: its backward refuses" in text
    quick = figures_table(replace(REPORT, setting=REPORT.setting | {"quick": True}))
    assert "| yes |" not in quick and "not judged" in quick


def test_the_page_about_the_kernels_shows_the_record_that_is_there() -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "results" / "gpu"
    record = folder / "bench.json"
    report = load(record) if record.exists() else Report(setting={})
    assert (folder / "figures.md").read_text() == figures_table(report)


def test_the_command_shows_records_from_elsewhere(tmp_path: Path) -> None:
    save(REPORT, tmp_path / "first.json")
    more = Result(row="bigbird", title="BigBird, later", missing="still not")
    save(Report(setting=REPORT.setting, results=[more]), tmp_path / "second.json")
    there = [str(tmp_path / name) for name in ("first.json", "second.json")]
    result = longspan(
        "bench", "gpu", "--from", there[0], "--from", there[1], "-o", str(tmp_path / "new")
    )
    assert result.exit_code == 0, result.stderr
    assert "2 of 3 targets met." in result.stdout
    assert "bigbird: still not" in result.stdout
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "bench.json",
        "figures.md",
        "ratios.svg",
        "per_token.svg",
        "floor.svg",
    }


@pytest.mark.parametrize("more", [(), ("--tune",), ("--only", "window-128")])
def test_without_a_gpu_the_command_says_so_in_one_line(
    more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert fails("bench", "gpu", *more) == (
        "Error: this benchmark needs an NVIDIA GPU, and PyTorch finds none "
        "(torch.cuda.is_available() is False)"
    )


def test_an_unknown_row_is_one_line() -> None:
    assert "there is no row 'windo': choose one of window-128, " in fails(
        "bench", "gpu", "--only", "windo"
    )


def test_a_record_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert "nothing.json" in fails("bench", "gpu", "--from", str(tmp_path / "nothing.json"))
