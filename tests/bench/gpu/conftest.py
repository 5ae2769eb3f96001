from __future__ import annotations

import importlib

import pytest


@pytest.fixture
def flex_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention refuses gradients on the CPU, where its dense form could compute them."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None, raising=False)
