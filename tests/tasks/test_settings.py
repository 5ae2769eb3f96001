"""Settings of a wrong type, as a command line can give them: each is named."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from longspan import tasks
from longspan.tasks.registry import KINDS

from ..small_tasks import TASKS, data_of

pytest.importorskip("tokenizers")

TEXT = "One day they met in Rome.\n\nThe other day it was Oslo.\n" * 40

OTHERS: dict[str, dict[str, Any]] = {
    "recall": {"length": 16, "distance": 4, "dev_examples": 2},
    "bytes": {"length": 16},
    "masked": {"length": 32, "vocabulary": 300},
}


def settings_of(name: str) -> list[str]:
    return [
        key for key in inspect.signature(KINDS[name]).parameters if key not in ("data", "cache")
    ]


@pytest.mark.parametrize("name", tasks.NAMES)
def test_settings_of_wrong_types_are_named(name: str, tmp_path: Path) -> None:
    data: Path | None
    if name in TASKS:
        data, settings = data_of(name, tmp_path), TASKS[name][2]
    else:
        data, settings = tmp_path / "text.txt", OTHERS[name]
        data.write_text(TEXT)
    data = None if name == "recall" else data
    made = tasks.make(name, data, cache=tmp_path / "cache", **settings)
    for key in settings_of(name):
        for wrong in ([1], {"a": 1}, True, 2.5):
            own = made.settings.get(key)
            if isinstance(wrong, type(own)) or (wrong == 2.5 and key == "share"):
                continue
            if key == "no_answer" and wrong == 2.5:
                continue
            with pytest.raises((TypeError, ValueError), match=key) as caught:
                tasks.make(name, data, cache=tmp_path / "cache", **{**settings, key: wrong})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in tasks.NAMES if name != "recall"])
def test_data_of_a_wrong_type_is_named(name: str) -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match=f"{name}: data must be a path, got int 7"):
        tasks.make(name, wrong)
