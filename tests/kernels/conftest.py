"""What tests of kernels share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels are interpreted, where there is no GPU for them. Their modules are imported
    once, so every test wants it that may be the first to import one.
    """
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
