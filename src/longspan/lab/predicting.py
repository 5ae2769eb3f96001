"""Predictions for a file of new input, line by line; what is there already is not asked again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..tasks import Task
from ..tasks.reading import Record, read_records
from ..training import Trained
from ..training.records import ASIDE, full_disk_said

__all__ = ["AT_ONCE", "predict"]

# So many records are read by the model together, and written together: always the same ones, so
# that a call that was stopped ends in the same file, bit for bit.
AT_ONCE = 8

PREDICTION = "prediction"


def predict(
    trained: Trained, source: Path, to: Path, *, done: Callable[[int, int], None]
) -> tuple[int, int]:
    """Reads records with what the task's model reads, and writes each with its prediction.

    All records are looked at first: what is wrong with one is said before anything is computed.
    Lines are written as they come, so a call that was stopped goes on behind the last ones that are
    whole. A record is written without its documents, and with what it had in other fields.

    Args:
        source: JSON lines, or a table (.csv, .tsv).
        to: gets a JSON line for each record, in the same order.
        done: told how many of how many records are predicted.

    Returns:
        How many records there are, and how many predictions were there before.
    """
    records = _checked(trained.task, source)
    kept = [_kept(trained.task, record) for record in records]
    before = _answered(to, kept, source)
    done(before, len(records))
    with full_disk_said(to), to.open("a", encoding="utf-8") as out:
        for first in range(before, len(records), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            found = trained.predict([record.values for record in records[some]])
            lines = zip(kept[some], found, strict=True)
            out.writelines(_line({**own, PREDICTION: said}) for own, said in lines)
            out.flush()
            done(min(first + AT_ONCE, len(records)), len(records))
    return len(records), before


def _checked(task: Task, path: Path) -> list[Record]:
    if not task.reads:
        # Says so before a line is looked at.
        task.check_input({})
    found = []
    for record in read_records(path, ()):
        try:
            task.check_input(record.values)
            _line(record.values).encode()
        except ValueError as error:
            raise ValueError(f"{record.place}: {error}") from None
        found.append(record)
    return found


def _kept(task: Task, record: Record) -> dict[str, Any]:
    left_out = (*task.documents, PREDICTION)
    return {name: value for name, value in record.values.items() if name not in left_out}


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"


def _answered(path: Path, kept: Sequence[dict[str, Any]], source: Path) -> int:
    """How many records need not be predicted again. What follows these in the file goes: a line
    that was cut short, and those that are computed together with others that are not there.
    """
    if not path.exists():
        return 0
    lines = path.read_bytes().split(b"\n")
    # Behind the last end of a line there is nothing, or a line that was cut short.
    whole = lines[:-1]
    if len(whole) > len(kept):
        raise ValueError(
            f"{path} has {len(whole)} lines and {source} has {len(kept)} records: are these "
            "predictions for another file? name another output"
        )
    for number, line in enumerate(whole):
        if _without_prediction(line) != _line(kept[number]):
            raise ValueError(
                f"{path}, line {number + 1}: this is no prediction for record {number + 1} of "
                f"{source}; name another output"
            )
    count = len(whole) if len(whole) == len(kept) else len(whole) // AT_ONCE * AT_ONCE
    if count < len(whole) or lines[-1]:
        aside = path.with_name(f"{ASIDE}{path.name}")
        aside.write_bytes(b"".join(line + b"\n" for line in whole[:count]))
        aside.replace(path)
    return count


def _without_prediction(line: bytes) -> str | None:
    """The record of a line, as a line; None where it is no prediction at all."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or PREDICTION not in found:
        return None
    return _line({name: value for name, value in found.items() if name != PREDICTION})
