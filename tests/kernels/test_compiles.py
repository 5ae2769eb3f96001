"""The GPU kernels compile for the cards that they are for, also where there is none: those for
Hopper cannot be interpreted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("capability", "of_its_own"), [(80, 0), (90, 6)])
def test_kernels_compile(capability: int, of_its_own: int, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    own = {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiling", str(capability)],
        env={**os.environ, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for kernel in ("outputs", "query_gradients", "key_gradients", "distance_gradients"):
        assert kernel in done.stdout
    assert ("columns_of_rows" in done.stdout) == bool(of_its_own)
