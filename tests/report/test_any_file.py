"""Files with anything at all in them: a page is always made, and it is always well-formed."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from longspan import report

from .fakes import look_of, study_of, write_run
from .pages import read_page

STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    float("nan"),
    float("-inf"),
    "",
    "<b>",
    "\ud800",
    [],
    [[]],
    {},
    {"kind": []},
    [1, "a", None],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a value there is something to replace; of a long list only the ends."""
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += places(value[key], (*path, key))
    elif isinstance(value, list):
        for at in sorted({0, len(value) - 1} if value else ()):
            found += places(value[at], (*path, at))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new
    return value


FILES = ["config.json", "result.json", "looks.json", "metrics.jsonl", "reaches.json"]


@pytest.mark.parametrize("name", FILES)
def test_anything_in_a_file_makes_a_page(tmp_path: Path, name: str) -> None:
    good = write_run(tmp_path / "good", seed=1, lines=12, look=look_of(count=12))
    bad = write_run(tmp_path / "bad", seed=2, lines=12, look=look_of(count=12), study=study_of())
    file = bad / name
    lines = file.read_text().splitlines()
    # A record of training with its reach, and one of the held-out text.
    numbers = [0, 10] if name == "metrics.jsonl" else [0]
    chance = random.Random(0)
    for number in numbers:
        value = json.loads(lines[number])
        for path in places(value):
            for new in chance.sample(STRANGE, 4):
                text = json.dumps(changed(value, path, new))
                file.write_text("\n".join([*lines[:number], text, *lines[number + 1 :]]))
                page = read_page(report.write([good, bad], tmp_path / "report.html"))
                rows = [row.all("td") for row in page.one("table", class_="results").all("tr")]
                assert any(row and row[0].text.startswith(("1", "2")) for row in rows), (path, new)
