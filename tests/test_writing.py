"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from longspan.writing import folder_aside, whole_file, write_text


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "ä\n")
    assert path.read_text(encoding="utf-8") == "ä\n"
    with pytest.raises(RuntimeError), whole_file(path) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "ä\n" and list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Not by the name that it has while it is written."""
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_text(tmp_path / "a", "text")
    assert caught.value.filename == str(tmp_path / "a")
    with pytest.raises(OSError, match="No space") as full, whole_file(tmp_path / "b"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "b") and full.value.errno == errno.ENOSPC
    with pytest.raises(FileNotFoundError) as other, whole_file(tmp_path / "b"):
        (tmp_path / "absent").read_text()
    assert other.value.filename == str(tmp_path / "absent")
    assert [own.name for own in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_others_may_read_what_they_may_elsewhere(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "")
        made = folder_aside(tmp_path / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~mask
    assert made.stat().st_mode & 0o777 == 0o777 & ~mask and made.parent == tmp_path
