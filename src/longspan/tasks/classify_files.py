"""Texts with a label: tables, JSONL, a folder for each class, or Hyperpartisan's XML."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from ..errors import describe
from .inputs import need_texts
from .reading import (
    COMPRESSED,
    SourceFile,
    kind_of,
    read_bytes,
    read_records,
    read_text,
    source_of,
    splits_of,
)

__all__ = ["Fields", "Labelled", "read_labelled"]

TABLES = (".tsv", ".csv", ".jsonl", ".ndjson")

# What the folders of a split are called.
DEV_FOLDERS = ("dev", "val", "valid", "validation", "test")

# Beside the classes to learn from: aclImdb has texts of which nobody says what they are.
UNLABELLED = ("unsup", "unlabeled", "unlabelled")


class Labelled(NamedTuple):
    """One or two texts and their class."""

    text: str
    second: str | None
    label: str


class Fields(NamedTuple):
    """What the fields of a table are called; `second` is None where there is one text."""

    text: str
    second: str | None
    label: str


class Read(NamedTuple):
    """What was read: to learn from, to be measured on (None where the data does not say), and from
    which files.
    """

    train: list[Labelled]
    dev: list[Labelled] | None
    files: list[SourceFile]


def read_labelled(data: Path, dev: Path | None, fields: Fields) -> Read:
    """All examples of a file or folder."""
    if data.is_dir() and list(data.glob("ground-truth*.xml*")):
        return _with(_hyperpartisan(data), dev, fields)
    if data.is_dir() and _inside(data):
        return _with(_folders(data), dev, fields)
    paths = splits_of(data, dev, TABLES)
    train = _table(paths.train, fields)
    other = None if paths.dev is None else _table(paths.dev, fields)
    return Read(train, other, [source_of(path) for path in paths if path is not None])


def _with(found: Read, dev: Path | None, fields: Fields) -> Read:
    """The same, measured on another file or folder where one is named."""
    if dev is None:
        return found
    other = read_labelled(dev, None, fields)
    return Read(found.train, other.train, [*found.files, *other.files])


def _table(path: Path, fields: Fields) -> list[Labelled]:
    if kind_of(path) not in TABLES:
        raise ValueError(
            f"{path}: the name must end in .tsv, .csv or .jsonl (or these and .gz or .xz); "
            "otherwise name a folder with a folder of texts for each class, or with "
            "articles….xml and ground-truth….xml"
        )
    found = []
    needed = [name for name in fields if name is not None]
    for place, values in read_records(path, needed):
        try:
            need_texts(values, [name for name in (fields.text, fields.second) if name is not None])
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        label = values[fields.label]
        if label is None or label == "":
            raise ValueError(f"{place}: {fields.label!r} is empty")
        if not isinstance(label, str | int | float):
            raise ValueError(
                f"{place}: {fields.label!r} must be a text or a number, got {describe(label)}"
            )
        second = None if fields.second is None else values[fields.second]
        found.append(Labelled(values[fields.text], second, str(label)))
    return found


def _folders(data: Path) -> Read:
    """A folder of files for each class; or, above these, one for each split."""
    inside = {path.name: path for path in _inside(data)}
    if "train" in inside:
        other = next((inside[name] for name in DEV_FOLDERS if name in inside), None)
        train, files = _classes(inside["train"], but=UNLABELLED)
        if other is None:
            return Read(train, None, files)
        dev, more = _classes(other)
        return Read(train, dev, files + more)
    found, files = _classes(data)
    return Read(found, None, files)


def _inside(data: Path) -> list[Path]:
    """The folders in a folder, without hidden ones."""
    return sorted(p for p in data.iterdir() if p.is_dir() and not p.name.startswith("."))


def _classes(data: Path, but: Sequence[str] = ()) -> tuple[list[Labelled], list[SourceFile]]:
    found, files = [], []
    for folder in _inside(data):
        if folder.name in but:
            continue
        texts = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        found += [Labelled(read_text(path), None, folder.name) for path in texts]
        files += [source_of(path) for path in texts]
    if not found:
        raise ValueError(f"{data} has no folders with texts: one for each class is expected")
    return found, files


def _hyperpartisan(data: Path) -> Read:
    """`articles….xml` holds the texts, `ground-truth….xml` whether each is hyperpartisan."""
    truth = _one(data, "ground-truth*.xml*")
    articles = _one(data, "articles*.xml*")
    labels = {}
    for place, element in _elements(truth, "article"):
        if "hyperpartisan" not in element.attrib or "id" not in element.attrib:
            raise ValueError(f"{place}: an article without 'id' or 'hyperpartisan'")
        labels[element.attrib["id"]] = element.attrib["hyperpartisan"]
    found = []
    for place, element in _elements(articles, "article"):
        name = element.attrib.get("id")
        if name not in labels:
            raise ValueError(f"{place}: article {name!r} is not in {truth}")
        words = [element.attrib.get("title", ""), *element.itertext()]
        text = "\n".join(" ".join(part.split()) for part in words if part.strip())
        found.append(Labelled(text, None, labels[name]))
    return Read(found, None, [source_of(articles), source_of(truth)])


def _one(data: Path, pattern: str) -> Path:
    kinds = (".xml", *(f".xml{suffix}" for suffix in COMPRESSED))
    found = sorted(path for path in data.glob(pattern) if path.name.endswith(kinds))
    if not found:
        raise FileNotFoundError(f"{data} has no file {pattern.removesuffix('*')}")
    return found[0]


def _elements(path: Path, tag: str) -> Iterator[tuple[str, ElementTree.Element]]:
    """The elements of a name, each with its place for messages."""
    try:
        tree = ElementTree.parse(io.BytesIO(read_bytes(path)))
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}, line {error.position[0]}: not XML, {error}") from error
    found = list(tree.iter(tag))
    if not found:
        raise ValueError(f"{path} has no <{tag}>")
    for number, element in enumerate(found):
        yield f"{path}, <{tag}> {number + 1}", element
