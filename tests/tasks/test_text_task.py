"""What tasks on text have in common: a tokenizer, which a description tells by its tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from longspan import tasks
from longspan.tasks.text_task import TextTask

from ..small_tasks import TASKS, data_of

pytest.importorskip("tokenizers")

ON_TEXT = [name for name in TASKS if issubclass(tasks.registry.KINDS[name], TextTask)]


@pytest.mark.parametrize("name", ON_TEXT)
def test_another_tokenizer_is_no_longer_the_same_task(name: str, tmp_path: Path) -> None:
    data, cache, settings = data_of(name, tmp_path), tmp_path / "cache", TASKS[name][2]
    for place, vocabulary in (("a", 300), ("b", 290)):
        made = tasks.make(name, data, cache=cache, **{**settings, "vocabulary": vocabulary})
        (tmp_path / place).mkdir()
        made.save(tmp_path / place)
    task = tasks.make(name, data, cache=cache, **settings, tokenizer=str(tmp_path / "a"))
    described = task.describe()
    assert tasks.from_description(described, cache=cache).describe() == described
    # As it was before descriptions told.
    old = {key: value for key, value in described.items() if key not in ("tokens", "tokenizer")}
    assert tasks.from_description(old, cache=cache).describe() == described
    # Tokens that mean the same to a model, and are those of other texts.
    file = tmp_path / "a" / "tokenizer.json"
    was = json.loads(file.read_text())
    file.write_text(json.dumps(was | {"normalizer": {"type": "Lowercase"}, "added_tokens": []}))
    changed = f"{name}: the tokenizer changed since .*: "
    with pytest.raises(ValueError, match=f"{changed}.*{file.name} is another; put it back"):
        tasks.from_description(described, cache=cache)
    shutil.copy(tmp_path / "b" / "tokenizer.json", file)
    with pytest.raises(ValueError, match=f"{changed}.*{file.name} is another; put it back"):
        tasks.from_description(described, cache=cache)
    of_tokens = {key: value for key, value in described.items() if key != "tokenizer"}
    with pytest.raises(ValueError, match=f"{changed}it has other tokens"):
        tasks.from_description(of_tokens, cache=cache)
