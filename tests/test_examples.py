"""The example runs, prints what it promises and stays short; its text is what NOTICE says."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "learned_window.py"
NOTEBOOK = ROOT / "examples" / "hugging_face_bert.ipynb"


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


def cells() -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def save_tiny_bert(folder: Path) -> None:
    """A BERT with random weights, and a tokenizer of a few words."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "[PAD]", "the", "of", "and", "in", "to", ".", ",", "[", "]", "'"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    )
    fast.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertModel(config).save_pretrained(folder)


@pytest.mark.filterwarnings("ignore:longspan was installed without:RuntimeWarning")
def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    save_tiny_bert(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGSPAN_MODEL", str(tmp_path / "model"))
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(cells()):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
    assert namespace["found"].cosine.numel() == 4096
    assert {path.name for path in Path("pictures").iterdir()} == {
        "hf-check.svg",
        "hf-profile.svg",
    }
    assert "(1, 4096, 16); 4 parameters of windows have gradients" in capsys.readouterr().out


def test_the_notebook_was_executed_and_stays_small() -> None:
    assert NOTEBOOK.stat().st_size < 400_000
    outputs = [output for cell in cells() for output in cell["outputs"]]
    assert all(cell["execution_count"] for cell in cells())
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) == 2
    # Neither errors nor warnings, and nothing of where it ran.
    assert {output["output_type"] for output in outputs} == {"stream", "execute_result"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
