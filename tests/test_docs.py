"""The code in the README and in the docs runs as it stands there, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "DESIGN.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r'^```python(?: title="([\w./]+)")?\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?',
    re.MULTILINE | re.DOTALL,
)


def pages_with_code() -> list[Path]:
    return [page for page in PAGES if page.exists() and BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", pages_with_code(), ids=lambda p: p.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a page run one after the other, as a reader would try them; one with a title is a
    file of that name.
    """
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "docs"}
    text = page.read_text()
    if "from transformers" in text:
        pytest.importorskip("transformers")
        pytest.importorskip("peft")
    for block in BLOCK.finditer(text):
        title, source, says = block.groups()
        if title is not None:
            (tmp_path / title).write_text(source)
            continue
        line = text[: block.start(2)].count("\n")
        code = compile("\n" * line + source, str(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        if says is not None:
            assert printed.getvalue().rstrip() == says.rstrip()


def test_the_readme_has_code() -> None:
    assert ROOT / "README.md" in pages_with_code()


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
