"""What is made from files once."""

from __future__ import annotations

import errno
import io
import re
import time
from pathlib import Path

import pytest
import torch

from longspan.tasks.progress import progress
from longspan.tasks.token_files import Ragged, RaggedWriter, cached, mapped, nothing_kept


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [[3, 1, 2], [], [2**31 - 1], [7] * 100]
    with RaggedWriter(tmp_path, "tokens") as writer:
        for row in rows:
            writer.add(row)
    found = Ragged.read(tmp_path, "tokens")
    assert [found[n].tolist() for n in range(len(found))] == rows
    assert found.lengths().tolist() == [3, 0, 1, 100]
    with pytest.raises(IndexError, match="there are 4 rows, asked for number 4"):
        found[4]


def test_no_rows_come_back_too(tmp_path: Path) -> None:
    with RaggedWriter(tmp_path, "tokens"):
        pass
    assert len(Ragged.read(tmp_path, "tokens")) == 0


def test_a_mapped_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"abc")
    path.chmod(0o444)
    found = mapped(path, torch.uint8)
    found[0] = 0
    assert path.read_bytes() == b"abc"


def test_it_is_made_once_for_a_key(tmp_path: Path) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "a").write_text("x")

    first = cached("thing", {"a": 1, "b": 2}, make, cache=tmp_path)
    assert cached("thing", {"b": 2, "a": 1}, make, cache=tmp_path) == first
    assert cached("thing", {"a": 2, "b": 2}, make, cache=tmp_path) != first
    assert len(calls) == 2
    assert (first / "a").read_text() == "x"
    assert sorted(p.name[:6] for p in tmp_path.iterdir()) == ["thing-", "thing-"]


def test_what_was_not_finished_is_not_there(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("thing", {}, make, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_process_that_was_faster(tmp_path: Path) -> None:
    def other(folder: Path) -> None:
        (folder / "a").write_text("theirs")

    def make(folder: Path) -> None:
        cached("thing", {}, other, cache=tmp_path)
        (folder / "a").write_text("ours")

    assert (cached("thing", {}, make, cache=tmp_path) / "a").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_says_where(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "a").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        OSError, match=r"no space is left on the disk of .* for thing: .*cache="
    ) as e:
        cached("thing", {}, make, cache=tmp_path)
    assert e.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot write to .*file.*: name another folder with cache="):
        cached("thing", {}, lambda folder: None, cache=tmp_path / "file")


def test_without_a_home_a_cache_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(FileNotFoundError, match="name a folder for tokens with cache="):
        cached("a", {}, lambda folder: None)
    assert cached("a", {}, lambda folder: None, cache=tmp_path).is_dir()


def test_progress_is_quiet_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    with progress("reading", 3) as advance:
        advance(3)
    assert said.getvalue() == ""


def test_progress_shows_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setenv("COLUMNS", "120")
    with progress("reading", 3) as advance:
        for _ in range(3):
            time.sleep(0.02)
            advance(1)
    assert "reading" in said.getvalue() and "3/3" in said.getvalue()
    # With a rate and the time left.
    assert re.search(r"\d texts/s", said.getvalue()) and "0:00:00" in said.getvalue()


def test_nothing_is_kept(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "one").write_text("1")

    kept = cached("thing", {"of": 1}, make, cache=tmp_path)
    with nothing_kept():
        assert cached("thing", {"of": 1}, make, cache=tmp_path) == kept
        other = cached("thing", {"of": 2}, make, cache=tmp_path)
        assert other == cached("thing", {"of": 2}, lambda folder: None, cache=tmp_path)
        assert (other / "one").read_text() == "1"
    assert not other.exists() and list(tmp_path.iterdir()) == [kept]
