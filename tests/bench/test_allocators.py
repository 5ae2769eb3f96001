"""The benchmark of allocators runs; what it finds is not asserted here."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longspan.bench import allocators
from longspan.cli import app

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")


def test_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "find_library", lambda name: None)
    kept = ("glibc, freed memory kept", "jemalloc")
    monkeypatch.setattr(allocators, "WAYS", {name: allocators.WAYS[name] for name in kept})
    found = CliRunner().invoke(app, ["bench", "allocators", "--quick", "-o", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "jemalloc is not installed" in found.output
    saved = json.loads((tmp_path / "allocators.json").read_text())
    first, second = saved["costs"]
    assert first["tokens_per_second"] > 0 and first["peak"] > 0 and not first["missing"]
    assert first["environment"] == allocators.WARM and saved["machine"]["libc"]
    assert (second["tokens_per_second"], second["peak"]) == (0, None)
    assert (tmp_path / "figures.md").read_text() == allocators.figures_table(saved)


def test_a_process_that_is_killed_is_not_the_end_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocators, "WAYS", {"plain": {}})
    monkeypatch.setattr(allocators, "child_environment", dict)
    monkeypatch.setattr(allocators.sys, "executable", "/bin/false")
    (cost,) = allocators.measure(quick=True).costs
    assert cost.missing == "its process ended with 1" and cost.peak is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about another C library")
def test_a_way_of_another_library_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators.platform, "libc_ver", lambda: ("musl", "1"))
    name = "glibc, freed memory kept"
    monkeypatch.setattr(allocators, "WAYS", {name: allocators.WAYS[name]})
    (cost,) = allocators.measure(quick=True).costs
    assert cost.missing == "the C library is not glibc"


def test_the_table_is_that_of_the_record() -> None:
    folder = Path(__file__).parents[2] / "benchmarks" / "results" / "allocators"
    report = json.loads((folder / "allocators.json").read_text())
    assert (folder / "figures.md").read_text() == allocators.figures_table(report)
