"""Files as they are published: what is wrong in one is said, and where."""

from __future__ import annotations

import csv
import gzip
import lzma
from pathlib import Path

import pytest

from longspan.tasks.reading import (
    kind_of,
    read_bytes,
    read_json,
    read_lines,
    read_records,
    read_text,
    source_of,
    splits_of,
)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_compressed_files_read_as_plain_ones(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(pack("één\ntwo\n".encode()))
    assert read_lines(path) == ["één", "two"]
    assert kind_of(path) == ".txt"


def test_a_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("one\ntwo\ncaf\xe9\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"latin\.txt, line 3: byte 0xe9 is not UTF-8"):
        read_text(path)


def test_a_byte_order_mark_is_dropped_and_does_not_shift_the_place(tmp_path: Path) -> None:
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n")
    assert read_text(path) == "one\n"
    path.write_bytes(b"\xef\xbb\xbfon\xff\n")
    with pytest.raises(ValueError, match="line 1: byte 0xff"):
        read_text(path)


def test_an_empty_file_a_missing_one_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty is empty"):
        read_bytes(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent"):
        read_bytes(tmp_path / "absent")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        source_of(tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_compressed_file_that_is_cut_off(tmp_path: Path, suffix: str) -> None:
    whole = (gzip.compress if suffix == ".gz" else lzma.compress)(bytes(range(256)) * 9)
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be decompressed"):
        read_bytes(path)


def test_json_that_is_broken_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1,\n "b": }')
    with pytest.raises(ValueError, match=r"a\.json, line 2: not JSON"):
        read_json(path)


def test_records_of_jsonl_csv_and_tsv(tmp_path: Path) -> None:
    texts = {
        "a.jsonl": '{"x": "1", "y": "a,b"}\n\n{"x": "2", "y": "c"}\n',
        "a.csv": 'x,y\n1,"a,b"\n2,c\n',
        "a.tsv": "x\ty\n1\ta,b\n2\tc\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = list(read_records(tmp_path / name, ("x", "y")))
        assert [r.values for r in found] == [{"x": "1", "y": "a,b"}, {"x": "2", "y": "c"}]
        assert found[1].place.endswith("line 3")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"x": 1}\n{"y": 1}\n', r"a\.jsonl, line 2: no field 'x'; there are 'y'"),
        ("a.jsonl", '{"x": 1}\nnope\n', r"a\.jsonl, line 2: not JSON"),
        ("a.jsonl", "[1]\n", r"line 1: must be a JSON object, got list"),
        ("a.jsonl", "\n", r"a\.jsonl has no records"),
        ("a.csv", "x,y\n1\n", r"a\.csv, line 2: 1 columns, where line 1 has 2"),
        ("a.csv", "z\n1\n", r"a\.csv, line 2: no field 'x'; there are 'z'"),
        ("a.csv", "x,y,x\n1,2,3\n", r"a\.csv, line 1: two columns are called 'x'; rename one"),
        ("a.tsv", "x\ty\ty\n1\t2\t3\n", r"a\.tsv, line 1: two columns are called 'y'"),
        ("a.csv", "\ufeff", r"a\.csv has no records"),
        ("a.csv", 'x\n"1\n', r"a\.csv, line 2: .*unexpected end"),
        ("a.txt", "x\n", r"must end in \.jsonl, \.csv or \.tsv"),
    ],
)
def test_records_that_are_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        list(read_records(tmp_path / name, ("x",)))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_fields_of_tables_are_as_long_as_documents(tmp_path: Path, name: str) -> None:
    long = 'a word and "another", ' * 100_000
    mark = "," if name == "a.csv" else "\t"
    written = '"' + long.replace('"', '""') + '"' if name == "a.csv" else long
    (tmp_path / name).write_text(f"x{mark}y\n1{mark}{written}\n2{mark}c\n")
    limit = csv.field_size_limit()
    found = list(read_records(tmp_path / name, ("x", "y")))
    assert [record.values for record in found] == [{"x": "1", "y": long}, {"x": "2", "y": "c"}]
    assert found[1].place.endswith("line 3")
    # What others read by Python's module has the limit that it had.
    assert csv.field_size_limit() == limit


def test_lines_of_tables_are_those_of_the_file(tmp_path: Path) -> None:
    """Also where a field has several, and with the ends of lines that other systems write."""
    (tmp_path / "a.csv").write_bytes(b'x,y\r\n1,"two\r\nlines"\r\n\r\n2,c\r\n')
    found = list(read_records(tmp_path / "a.csv", ()))
    assert [record.values["y"] for record in found] == ["two\r\nlines", "c"]
    assert [record.place.rpartition("line ")[2] for record in found] == ["3", "5"]


def test_files_of_a_folder_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in ("birth_places_train.tsv", "birth_dev.tsv", "test.tsv", "train.txt", "constrained"):
        (tmp_path / name).touch()
    found = splits_of(tmp_path, None, (".tsv",))
    assert found.train.name == "birth_places_train.tsv"
    assert found.dev is not None and found.dev.name == "birth_dev.tsv"
    other = tmp_path / "test.tsv"
    assert splits_of(tmp_path, other, (".tsv",)).dev == other
    assert splits_of(other, None, (".tsv",)) == (other, None)
    with pytest.raises(
        ValueError,
        match=r"with a word that begins with 'train' in its name, and that ends in .json",
    ):
        splits_of(tmp_path, None, (".json",))
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        splits_of(tmp_path / "absent", None, (".tsv",))


@pytest.mark.parametrize(
    ("names", "train", "dev"),
    [
        (("device_train.tsv", "device_valid.tsv"), "device_train.tsv", "device_valid.tsv"),
        (("valence_test.tsv", "valence_train.tsv"), "valence_train.tsv", "valence_test.tsv"),
        (("train_validated.tsv",), "train_validated.tsv", None),
        (("training.tsv", "testing.tsv"), "training.tsv", "testing.tsv"),
        (("eng.testa.tsv", "eng.train.tsv", "trainers.tsv"), "eng.train.tsv", "eng.testa.tsv"),
    ],
)
def test_words_of_names_come_before_their_beginnings(
    names: tuple[str, ...], train: str, dev: str | None, tmp_path: Path
) -> None:
    """And what is learned from is not what is measured on."""
    for name in names:
        (tmp_path / name).touch()
    found = splits_of(tmp_path, None, (".tsv",))
    assert found.train.name == train
    assert (None if found.dev is None else found.dev.name) == dev


def test_a_source_is_known_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    found = source_of(tmp_path / "a")
    assert (found.bytes, found.sha256[:8]) == (3, "ba7816bf")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"%PDF-1.7\n\xe2\xff", "it is a PDF: take the text out of it first"),
        (b"PK\x03\x04\xff", "it is an archive, such as a .docx"),
        ("a,b\n".encode("utf-16"), "it is UTF-16: convert it first"),
        (b"caf\xe9", "convert the file first, for example with iconv -f latin1"),
    ],
    ids=["PDF", "Word", "UTF-16", "Latin-1"],
)
def test_files_that_are_no_text_say_what_they_are(
    content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=f"a.txt, line .: byte 0x.. is not UTF-8 text; {says}"):
        read_text(tmp_path / "a.txt")
