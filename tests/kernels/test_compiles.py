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


@pytest.mark.parametrize(
    ("capability", "some"),
    [(80, ("_rounded",)), (90, ("columns_of_rows", "repair_gradients", "distance_gradients"))],
)
def test_kernels_compile(capability: int, some: tuple[str, ...], tmp_path: Path) -> None:
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
    window = ("shares", "share_sums", "budget_of_one", "budget_of_many", "gradient_of_many")
    for kernel in ("outputs", "query_gradients", "key_gradients", *window, *some):
        assert kernel in done.stdout
