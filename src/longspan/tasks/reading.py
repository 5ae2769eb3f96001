"""Files as they are published, plain or compressed; what is wrong in one is said with its place."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ..errors import describe
from ..paths import expanded

__all__ = [
    "Record",
    "SourceFile",
    "Splits",
    "hash_now",
    "kind_of",
    "need_fields",
    "path_of",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_object",
    "read_records",
    "read_text",
    "source_of",
    "splits_of",
]

COMPRESSED = (".gz", ".xz")

# How files of a folder are told apart by their names, the first that fits.
TRAIN_NAMES = ("train",)
DEV_NAMES = ("dev", "val", "test")
WHOLE = {"dev": ("dev", "development"), "val": ("val", "valid", "validation")}

# What files that are no text begin with, and what to do with them.
NO_TEXT = {
    b"%PDF": "it is a PDF: take the text out of it first, for example with pdftotext",
    b"PK\x03\x04": "it is an archive, such as a .docx or .xlsx: save it as text first",
    b"\xff\xfe": "it is UTF-16: convert it first, for example with iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "it is UTF-16: convert it first, for example with iconv -f utf-16 -t utf-8",
}

# Who changes the longest field of all tables.
_LIMIT = Lock()


class SourceFile(NamedTuple):
    """A file that was read.

    Attributes:
        path: where it lay.
        bytes: its size there.
        sha256: of its bytes there.
    """

    path: str
    bytes: int
    sha256: str


class Record(NamedTuple):
    """A line of a table or of JSONL.

    Attributes:
        place: file and line, for messages.
        values: its fields by name.
    """

    place: str
    values: dict[str, Any]


class Splits(NamedTuple):
    """Which files are to learn from and which to measure on; `dev` is None where none was found."""

    train: Path
    dev: Path | None


def source_of(path: Path) -> SourceFile:
    """A file's size and hash."""
    _need_file(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SourceFile(str(path), path.stat().st_size, digest)


def hash_now(path: Path) -> str:
    """A file's hash as in `source_of`, which is made again only when the file was changed."""
    told = path.stat()
    return _hash(path.absolute(), told.st_size, told.st_mtime_ns)


@cache
def _hash(path: Path, size: int, changed: int) -> str:
    return source_of(path).sha256


def path_of(name: str, value: object) -> Path:
    """A setting that is a path; `name` is what the message calls it."""
    if not isinstance(value, str | Path):
        raise TypeError(f"{name} must be a path, got {describe(value)}")
    return expanded(value)


def kind_of(path: Path) -> str:
    """A file's suffix without that of a compression: `.json` of `dev.json.xz`."""
    name = path.with_suffix("") if path.suffix in COMPRESSED else path
    return name.suffix.lower()


def read_bytes(path: Path) -> bytes:
    """A file's bytes, decompressed; an empty one raises."""
    _need_file(path)
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                found = file.read()
        elif path.suffix == ".xz":
            with lzma.open(path) as file:
                found = file.read()
        else:
            found = path.read_bytes()
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path}: cannot be decompressed, {error}: is it whole?") from error
    if not found:
        raise ValueError(f"{path} is empty")
    return found


def read_text(path: Path) -> str:
    """A file's text, which must be UTF-8; a mark of byte order at its begin is dropped."""
    found = read_bytes(path)
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Without the mark, which the error's place does not count.
        start = error.start + (3 if found.startswith(b"\xef\xbb\xbf") else 0)
        line = found.count(b"\n", 0, start) + 1
        raise ValueError(
            f"{path}, line {line}: byte 0x{found[start]:02x} is not UTF-8 text; {_cure(found)}"
        ) from error


def _cure(content: bytes) -> str:
    """What to do with a file that is not UTF-8, by how it begins."""
    for begin, cure in NO_TEXT.items():
        if content.startswith(begin):
            return cure
    return "convert the file first, for example with iconv -f latin1 -t utf-8"


def read_lines(path: Path) -> list[str]:
    """A file's lines without their ends; the n-th is line n + 1 of the file."""
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON, {error.msg}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold an object, got {describe(found)}")
    return found


def read_records(path: Path, needed: Sequence[str]) -> Iterator[Record]:
    """The records of a JSONL, CSV or TSV file, each with at least the needed fields.

    A table names its columns in its first line.
    """
    kind = kind_of(path)
    if kind in (".jsonl", ".ndjson"):
        found = _json_records(path)
    elif kind in (".csv", ".tsv"):
        found = _table_records(path, "\t" if kind == ".tsv" else ",")
    else:
        raise ValueError(
            f"{path}: the name must end in .jsonl, .csv or .tsv (or these and .gz or .xz)"
        )
    empty = True
    for record in found:
        empty = False
        need_fields(record, needed)
        yield record
    if empty:
        raise ValueError(f"{path} has no records")


def need_fields(record: Record, needed: Sequence[str]) -> None:
    """Raises unless a record has all of these fields."""
    missing = [name for name in needed if name not in record.values]
    if missing:
        raise ValueError(
            f"{record.place}: no field {missing[0]!r}; "
            f"there are {', '.join(map(repr, record.values)) or 'none'}"
        )


def splits_of(data: Path, dev: Path | None, kinds: Sequence[str]) -> Splits:
    """The files to learn from and to measure on.

    A file is to learn from. In a folder it is the one whose name begins with `train` or has it
    after a mark (`birth_places_train.tsv`); to measure on, the same with `dev`, `val` or `test`,
    in this order, unless `dev` names another.
    """
    if not data.exists():
        raise FileNotFoundError(f"there is no file or folder {data}")
    if not data.is_dir():
        return Splits(data, dev)
    files = sorted(path for path in data.iterdir() if path.is_file() and kind_of(path) in kinds)
    train = _named(files, TRAIN_NAMES)
    if train is None:
        raise ValueError(
            f"{data} has no file with a word that begins with 'train' in its name, and that ends "
            f"in {', '.join(kind or 'nothing' for kind in kinds)}; there are "
            f"{', '.join(path.name for path in files) or 'none of that kind'}: name the file itself"
        )
    others = [path for path in files if path != train]
    return Splits(train, dev or _named(others, DEV_NAMES))


def _named(files: list[Path], names: Sequence[str]) -> Path | None:
    """The first with such a word in its name: the word itself, or if none has it, one that begins
    so (`device_valid.tsv` has both).
    """
    for whole in (True, False):
        for name in names:
            words = WHOLE.get(name, (name,))
            for path in files:
                parts = _parts(path.name)
                if any(part in words if whole else part.startswith(name) for part in parts):
                    return path
    return None


def _parts(name: str) -> list[str]:
    """A name's words: `birth_places_train.tsv` has four."""
    return "".join(c if c.isalnum() else " " for c in name.lower()).split()


def _json_records(path: Path) -> Iterator[Record]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{place}: not JSON, {error.msg}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{place}: must be a JSON object, got {type(values).__name__}")
        yield Record(place, values)


def _table_records(path: Path, mark: str) -> Iterator[Record]:
    (first, names), *rows = _table_rows(path, mark) or [(1, [])]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"{path}, line {first}: two columns are called {name!r}; rename one")
    for line, row in rows:
        place = f"{path}, line {line}"
        if len(row) != len(names):
            raise ValueError(f"{place}: {len(row)} columns, where line {first} has {len(names)}")
        yield Record(place, dict(zip(names, row, strict=True)))


def _table_rows(path: Path, mark: str) -> list[tuple[int, list[str]]]:
    """The rows of a table, its columns' names first, each with the line that it ends in."""
    text = read_text(path)
    lines = io.StringIO(text, newline="")
    if mark == "\t":
        # It has no quotes in most published files, and a lone one would swallow lines.
        reader = csv.reader(lines, delimiter=mark, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, delimiter=mark, strict=True)
    try:
        with _fields_up_to(len(text)):
            return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


@contextmanager
def _fields_up_to(length: int) -> Iterator[None]:
    """Fields may be so long, which are documents here: Python's module has one limit for all who
    use it, and has it back afterwards.
    """
    with _LIMIT:
        before = csv.field_size_limit()
        csv.field_size_limit(max(before, length))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _need_file(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, where a file is needed")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
