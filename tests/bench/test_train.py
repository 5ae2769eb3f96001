"""The benchmark of the trainer runs; what it finds is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from longspan.cli import app

pytest.importorskip("accelerate")


def test_quick(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["bench", "train", "--quick", "-o", str(tmp_path)])
    assert found.exit_code == 0, found.output
    assert "the trainer adds" in found.output
    saved = json.loads((tmp_path / "bench.json").read_text())
    bare, trainer = saved["bare"]["median"], saved["trainer"]["median"]
    assert saved["added"] == pytest.approx(100 * (trainer / bare - 1))
    assert saved["sizes"]["threads"] == 1 and saved["machine"]


def test_a_wrong_device() -> None:
    found = CliRunner().invoke(app, ["bench", "train", "--device", "tpu"])
    assert found.exit_code == 2 and "cpu or cuda" in found.output
