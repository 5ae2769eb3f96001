"""The code in the README and in the docs runs as it stands there, and prints what it says."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from longspan.catalogue import TABLE, with_tables

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


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: p.name)
def test_tables_are_those_of_their_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- begin ") == len(TABLE.findall(text))
    assert with_tables(text, ROOT) == text, "make pages"


def test_every_table_is_in_a_page() -> None:
    shown = {name for page in PAGES for _, name, _ in TABLE.findall(page.read_text("utf-8"))}
    for folder, name in (("results", "table.md"), ("benchmarks/results", "figures.md")):
        there = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(name)}
        assert there, folder
        assert there <= shown


# A directive of the page, its module, and the members that it asks for.
MEMBERS = re.compile(r"^::: (longspan\.\w+)\n(?:    .*\n)*?      members: \[(.*)\]$", re.MULTILINE)


@pytest.mark.parametrize("name", ["models", "nn", "recipes", "tasks", "training"])
def test_the_api_page_has_every_public_name(name: str) -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    module = importlib.import_module(f"longspan.{name}")
    listed = dict(MEMBERS.findall(page))[module.__name__].split(", ")
    # The page's reader takes a name that is a file's, too, for the file: such have their own line.
    files = {path.stem for path in (ROOT / "src" / "longspan" / name).glob("*.py")}
    assert not files & set(listed)
    alone = re.findall(rf"^::: longspan\.{name}\.\w+\.(\w+)$", page, re.MULTILINE)
    public = {each for each in module.__all__ if not each.isupper()}
    assert {*listed, *alone} == public


@pytest.mark.parametrize("name", ["patterns", "weights", "normalizers"])
def test_pages_list_every_kind(name: str) -> None:
    module = importlib.import_module(f"longspan.{name}")
    base = getattr(module, name.removesuffix("s").capitalize())
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)
    kinds = {each for each in module.__all__ if isinstance(getattr(module, each), type)}
    own = {each for each in kinds if issubclass(getattr(module, each), base)} - {base.__name__}
    # `|` and `&` make these.
    assert set(listed) == own - {"AllOf", "AnyOf"}
