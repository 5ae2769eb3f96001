"""Predictions for a file of new input; a call that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..tasks import InputReader
from ..tasks.reading import Record, read_records, source_of
from ..training import Trained
from ..training.records import full_disk_said

__all__ = ["AT_ONCE", "part_of", "predict"]

# So many records are read by the model together, and written together: always the same ones, so
# that a call that was stopped ends in the same file, bit for bit.
AT_ONCE = 8

PREDICTION = "prediction"


def predict(
    trained: Trained, source: Path, to: Path, *, done: Callable[[int, int], None]
) -> tuple[int, int]:
    """Reads records with what the task's model reads, and writes each with its prediction.

    All records are looked at first: what is wrong with one is said before anything is computed.
    Lines are written as they come, to a file beside the output that becomes it at the end; from
    what is there a call that was stopped goes on. The name of that file has what model and which
    input it is of: another's is not gone on with. A record is written without its documents, and
    with what it had in other fields.

    Args:
        source: JSON lines, or a table (.csv, .tsv).
        to: gets a JSON line for each record, in the same order.
        done: told how many of how many records are predicted.

    Returns:
        How many records there are, and how many were predicted before.
    """
    reader = trained.input_reader
    records = _checked(reader, source)
    if to.is_dir():
        raise IsADirectoryError(f"{to} is a folder: name a file for the predictions")
    if not to.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {to.parent} for {to.name}: make it first")
    if to.exists() and to.samefile(source):
        raise ValueError(f"{to} is what is read: name another output")
    part = part_of(trained, source, to)
    with full_disk_said(to):
        before = _cut_back(part)
        done(before, len(records))
        with part.open("a", encoding="utf-8") as out:
            for first in range(before, len(records), AT_ONCE):
                some = records[first : first + AT_ONCE]
                found = trained.predict([record.values for record in some])
                for record, said in zip(some, found, strict=True):
                    out.write(_line({**_kept(reader, record), PREDICTION: said}))
                out.flush()
                done(first + len(some), len(records))
        part.replace(to)
    return len(records), before


def part_of(trained: Trained, source: Path, to: Path) -> Path:
    """The file that is written until it is whole."""
    key = hashlib.sha256(f"{_hash_of(trained.model)} {source_of(source).sha256}".encode())
    return to.with_name(f"{to.name}.{key.hexdigest()[:8]}.part")


def _hash_of(model: nn.Module) -> str:
    """A key for all weights."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _checked(reader: InputReader, path: Path) -> list[Record]:
    found = []
    for record in read_records(path, ()):
        try:
            reader.check(record.values)
            _line(record.values).encode()
        except ValueError as error:
            raise ValueError(f"{record.place}: {error}") from None
        found.append(record)
    return found


def _kept(reader: InputReader, record: Record) -> dict[str, Any]:
    return {name: own for name, own in record.values.items() if name not in reader.documents}


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"


def _cut_back(path: Path) -> int:
    """How many lines are there that need not be computed again. What follows these goes: a line
    that was cut short, and those that are computed together with others that are not there.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        lines = file.read().split(b"\n")[:-1]
        count = len(lines) // AT_ONCE * AT_ONCE
        file.truncate(sum(len(line) + 1 for line in lines[:count]))
    return count
