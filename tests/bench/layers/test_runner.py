from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from longspan.bench.layers import PROBLEMS, load, merged, run
from longspan.bench.layers.__main__ import main
from longspan.bench.layers.markdown import figures_table, save_figures
from longspan.bench.layers.plots import save_plots
from longspan.bench.layers.runner import chosen
from longspan.bench.layers.table import show
from longspan.bench.records import Figure, Outcome, Report, Sample, save
from longspan.measure import child_environment

pytestmark = pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")

ON_CPU: dict[str, Any] = {
    "processor": "AMD",
    "threads": 2,
    "dtype": "float32",
    "torch": "2",
    "versions": {"longspan": "0.1", "transformers": None},
    "load before": 0.1,
}
ON_GPU: dict[str, Any] = {
    "card": "H200",
    "dtype": "bfloat16",
    "compiled": "each layer",
    "versions": {"torch": "2.11"},
}


def report(device: str, at: dict[str, Any], problem: str, value: float | None) -> Report:
    sample = None if value is None else Sample(value, value, value, 3)
    missing = "" if value else "out of memory"
    return Report(
        setting={"quick": False, "devices": {device: at}},
        outcomes=[Outcome(problem=problem, name="a", length=8, both=sample, missing=missing)],
        figures=[
            Figure(
                problem=problem,
                what=problem,
                unit="× faster",
                values=(None, value),
                targets=(None, 2.0),
                at_least=True,
                note=missing,
            ),
            Figure(problem=problem, what="ceiling", unit="× faster", values=(None, 4.0)),
        ],
    )


def test_problems_belong_to_a_device() -> None:
    assert chosen(None, "cpu") == ["longformer", "bigbird", "encoder-4096", "encoder-8192"]
    assert chosen(None, "cuda") == [
        "encoder-16384",
        "encoder-32768",
        "reader-4096",
        "reader-16384",
    ]
    assert set(PROBLEMS) == {*chosen(None, "cpu"), *chosen(None, "cuda")}
    with pytest.raises(ValueError, match="no problem 'bigbird' for cuda: choose one of encoder-16"):
        chosen(["bigbird"], "cuda")


def test_a_record_is_kept_and_what_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    entrant = PROBLEMS["bigbird"]

    def broken(quick: bool, layers: int) -> Any:
        problem = entrant.make(quick, layers)

        def fails(size: Any) -> Any:
            raise RuntimeError("out of memory\nby far")

        return replace(problem, peers=(replace(problem.peers[0], make=fails),))

    monkeypatch.setitem(PROBLEMS, "bigbird", entrant._replace(make=broken))
    titles: list[str] = []
    path = tmp_path / "bench.json"
    found = run(["bigbird", "encoder-4096"], quick=True, path=path, on_problem=titles.append)
    assert load(path) == found
    assert len(titles) == 2 and titles[1].startswith("BERT's encoder, 2 layers")
    assert {o.missing for o in found.outcomes if o.problem == "bigbird"} == {
        "RuntimeError: out of memory"
    }
    assert found.figures[0].values == (None, None)
    assert found.figures[0].note == "RuntimeError: out of memory"
    assert found.figures[1].values[1] is not None
    assert found.setting["devices"]["cpu"]["layers"] == 12


def test_runs_of_two_devices_become_one_and_the_later_is_taken() -> None:
    cpu = report("cpu", ON_CPU, "longformer", 1.0)
    again = report("cpu", ON_CPU, "longformer", 3.0)
    gpu = report("cuda", ON_GPU, "encoder-16384", 4.0)
    found = merged([gpu, cpu, again])
    assert [figure.values[1] for figure in found.figures] == [3.0, 4.0, 4.0, 4.0]
    assert [outcome.problem for outcome in found.outcomes] == ["longformer", "encoder-16384"]
    assert set(found.setting["devices"]) == {"cpu", "cuda"}
    other = report("cpu", ON_CPU | {"processor": "Intel"}, "bigbird", 1.0)
    with pytest.raises(ValueError, match="different machines: AMD and Intel"):
        merged([cpu, other])


def test_shown_written_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = merged(
        [
            report("cpu", ON_CPU, "longformer", 3.0),
            report("cpu", ON_CPU, "bigbird", None),
            report("cuda", ON_GPU, "encoder-16384", 1.5),
        ]
    )
    text = figures_table(found)
    assert "AMD, 2 threads, float32, torch 2, longspan 0.1; load" in text
    assert "H200, bfloat16, each layer; torch 2.11." in text
    assert "| longformer | 3.00 | ≥ 2 | yes |" in text
    assert "| bigbird | — out of memory | ≥ 2 |  |" in text
    assert "| encoder-16384 | 1.50 | ≥ 2 | no |" in text
    assert "| `bigbird` | a | 8 | out of memory | | |" in text
    assert save_figures(found, tmp_path / "new").read_text() == text
    console = Console(width=150, record=True, file=(tmp_path / "out").open("w"))
    show(found, console)
    console.file.close()
    assert "1 of 2 targets met." in console.export_text()
    (picture,) = save_plots(found, tmp_path)
    assert picture.name == "layers.svg" and picture.read_bytes().startswith(b"<?xml")
    assert save_plots(report("cpu", ON_CPU, "bigbird", None), tmp_path) == []


def test_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert main(["-o", str(tmp_path), "--quick", "--only", "encoder-8192"]) == 0
    assert len(load(tmp_path / "bench.json").figures) == 2
    assert "quick look" in capsys.readouterr().err
    assert main(["-o", str(tmp_path), "--only", "windo"]) == 2
    assert "there is no problem 'windo' for cpu" in capsys.readouterr().err


def test_a_record_can_be_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    found = report("cpu", ON_CPU, "longformer", 3.0)
    save(found, path)
    assert load(path) == found


def test_the_module_needs_neither_tables_nor_plots(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('rich', 'typer', 'matplotlib', 'triton'):\n"
        "    sys.modules[name] = None\n"
        "from longspan.bench.layers.__main__ import main\n"
        f"print(main(['-o', {str(tmp_path)!r}, '--device', 'cuda', '--only', 'windo']))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment()
    )
    assert found.stdout == "2\n", found.stderr
    assert "there is no problem 'windo' for cuda" in found.stderr


def test_no_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="needs an NVIDIA GPU"):
        run(device="cuda")


@pytest.mark.gpu
def test_encoders_are_compiled_and_timed_on_a_real_device(any_order: None) -> None:
    pytest.importorskip("transformers")
    report = run(device="cuda", quick=True)
    assert report.outcomes and not any(outcome.missing for outcome in report.outcomes)
    assert all(outcome.both is not None for outcome in report.outcomes)
