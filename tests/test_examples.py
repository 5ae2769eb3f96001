"""The example runs, prints what it promises and stays short; its text is what NOTICE says."""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "learned_window.py"


def test_runs_in_a_few_steps() -> None:
    found = subprocess.run(
        [sys.executable, str(EXAMPLE), "--steps", "5"], capture_output=True, text=True, cwd=ROOT
    )
    assert found.returncode == 0, found.stderr
    for task in ("recall", "enwik8"):
        for kind in ("fixed", "learned"):
            line = rf"{task}, {kind} reach: [\d.]+% right, [\d.]+ bits, mean [\d.]+"
            assert re.search(line, found.stdout), found.stdout[-2000:]
    assert "reach" in found.stdout


def test_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    model = runpy.run_path(str(EXAMPLE))["Model"](256).eval()
    torch.nn.init.normal_(model.u_d, std=2)
    text = torch.randint(256, (16, 128))
    other = text.clone()
    other[:, 70:] = torch.randint(256, (16, 58))
    with torch.no_grad():
        (logits, reach), (others, other_reach) = model(text), model(other)
    assert reach.unique().numel() > 1
    assert torch.equal(reach[..., :70], other_reach[..., :70])
    assert torch.equal(logits[:, :70], others[:, :70])


def test_is_under_a_hundred_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 100


def test_the_text_is_the_one_named() -> None:
    notice = (ROOT / "NOTICE").read_text()
    data = (files("longspan") / "data" / "enwik8_slice.txt").read_bytes()
    assert hashlib.sha256(data).hexdigest() in notice
    assert f"{len(data):,} bytes" in notice
    data.decode("utf-8")
