"""Files of Python that a user names, as modules."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["module_of"]


def module_of(path: Path) -> ModuleType:
    """A file as a module. While it runs, it may import what lies beside it, as a script does.

    Raises:
        ValueError: it is not Python; with the line.
    """
    path = path.resolve()
    try:
        compile(path.read_bytes(), str(path), "exec")
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    # Dataclasses look for their module by its name, which must not be one that others import.
    name = f"_longspan_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path[:] = before
    return module
