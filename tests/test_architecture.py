"""Who imports whom: only downwards, and nothing heavy at the start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "longspan"

# A module may import modules of lower numbers, and of its own folder.
LAYERS = {
    "__version__": -1,
    "once": -1,
    "errors": 0,
    "fixed_order": 0,
    "kinds": 0,
    "memory": 0,
    "paths": 0,
    "remembering": 0,
    "terminal": 0,
    "writing": 0,
    "data": 0,
    "modules": 0,
    "patterns": 1,
    "normalizers": 1,
    "weights": 1.5,
    "layout": 2,
    "kernels": 3,
    "functional": 4,
    "nn": 5,
    "models": 6,
    "hf": 6.5,
    "tasks": 6,
    "training": 7,
    "recipes": 8,
    "report": 8,
    "serve": 8,
    "gallery": 8,
    "lab": 8.5,
    "catalogue": 8,
    "measure": 7.5,
    "bench": 8,
    "cli": 9,
    "__main__": 10,
}

HEAVY = ("triton", "transformers", "matplotlib", "accelerate", "typer", "rich", "numpy.testing")


def imported(path: Path) -> list[str]:
    """The parts of longspan that a file imports, by the name of their folder or file."""
    package = ["longspan", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [[*base, *(node.module or "").split(".")]] if node.module else []
            if not node.module:
                names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        found += [name[1] for name in names if name[0] == "longspan" and len(name) > 1]
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.name))
def test_imports_go_downwards(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in LAYERS, f"{own} has no place among the layers"
    for name in imported(path):
        assert name == own or LAYERS[name] < LAYERS[own], f"{own} imports {name}"


BACKENDS = {
    "reference": ["reference.py"],
    "torch": ["torch.py", "key_sums.py", "tile.py", "tile_terms.py"],
    "cpu": ["cpu/__init__.py", "cpu/launch.py", "cpu/native.py", "cpu/request.py", "cpu/rows.py"],
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_do_not_know_one_another(backend: str) -> None:
    kernels = PACKAGE / "kernels"
    others = {Path(n).stem for b, own in BACKENDS.items() if b != backend for n in own} | {"cpu"}
    others -= {"__init__", backend}
    for name in BACKENDS[backend]:
        depth = name.count("/") + 1  # how many dots lead to `kernels`
        for node in ast.walk(ast.parse((kernels / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == depth and node.module:
                assert node.module.split(".")[0] not in others, f"{name} imports {node.module}"


def run_python(code: str, *flags: str, **env: str) -> str:
    found = subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, env=env or None
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_import_is_light() -> None:
    code = f"import sys, longspan; print([n for n in {HEAVY} if n in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_import_touches_no_gpu() -> None:
    code = "import torch, longspan; print(torch.cuda.is_initialized())"
    assert run_python(code).strip() == "False"


def test_works_from_a_plain_checkout() -> None:
    """With nothing built or installed: only the path to the sources, and torch."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "import torch, longspan as ls\n"
        "assert ls.__file__.startswith(sys.path[0]), ls.__file__\n"
        "q = torch.randn(1, 2, 9, 4)\n"
        "print(tuple(ls.attention(q, q, q, ls.patterns.Window(2, 2)).shape))"
    )
    assert run_python(code).strip() == "(1, 2, 9, 4)"
