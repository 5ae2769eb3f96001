"""Answers to a file of questions, line by line; what is there already is not asked again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..training import Trained

__all__ = ["predict"]


class _Asked(NamedTuple):
    line: int
    given: dict[str, Any]


def predict(
    trained: Trained, source: Path, to: Path, *, done: Callable[[int, int], None]
) -> tuple[int, int]:
    """Reads JSON lines with `question` and `context`, and writes each with what was found.

    Lines are written as they are answered, so a call that was stopped goes on behind the last whole
    one.

    Args:
        source: one object a line.
        to: gets as many lines, in the same order.
        done: told how many of how many lines are answered.

    Returns:
        How many lines there are, and how many were there before.
    """
    lines = list(_questions(source))
    before = _answered(to, len(lines))
    with to.open("a", encoding="utf-8") as out:
        for number in range(before, len(lines)):
            given = lines[number].given
            found = trained.answer(given["question"], given["context"])
            kept = {name: value for name, value in given.items() if name != "context"}
            out.write(json.dumps({**kept, **found.as_dict()}, ensure_ascii=False) + "\n")
            out.flush()
            done(number + 1, len(lines))
    return len(lines), before


def _questions(path: Path) -> Iterator[_Asked]:
    from ..tasks.reading import read_lines

    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
        for name in ("question", "context"):
            if not isinstance(given, dict) or not isinstance(given.get(name), str):
                raise ValueError(f"{path}, line {number}: there is no {name!r} that is a text")
        yield _Asked(number, given)


def _answered(path: Path, most: int) -> int:
    """How many whole lines are there; one that was cut short goes."""
    if not path.exists():
        return 0
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    count = whole.count("\n")
    if count > most:
        raise ValueError(f"{path} has {count} lines and the questions are {most}: another file?")
    if whole != text:
        aside = path.with_name(path.name + ".part")
        aside.write_text(whole, encoding="utf-8")
        aside.replace(path)
    return count
