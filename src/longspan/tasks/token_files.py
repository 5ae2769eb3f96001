"""What is made from files once, kept beside them and mapped into memory: tokens above all."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from ..paths import expanded, home
from ..writing import folder_aside

__all__ = ["Ragged", "RaggedWriter", "Rows", "cached", "hash_of", "mapped", "nothing_kept"]

# Changes when files of an earlier version could no longer be read, or would be read wrongly.
FORMAT = 1

# Where new folders go while nothing is to be kept.
_ASIDE: ContextVar[Path | None] = ContextVar("aside", default=None)


def cached(
    name: str,
    key: Mapping[str, Any],
    make: Callable[[Path], None],
    *,
    cache: str | Path | None = None,
) -> Path:
    """The folder with what `make` writes into a folder, which it is asked for once for a key.

    Files are written to the side and renamed as one: a folder that is there is whole, and of two
    processes that make it at once both get one.

    Args:
        name: what it is, for the folder's name.
        key: all that it follows from, as JSON can hold it: hashes of files, settings.
        make: writes the files.
        cache: the folder of such folders; `~/.cache/longspan` by default.
    """
    place = _place() if cache is None else expanded(cache)
    text = json.dumps({"format": FORMAT, "name": name, **key}, sort_keys=True)
    folder = place / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    if folder.is_dir():
        return folder
    aside = _ASIDE.get()
    if aside is not None:
        place = aside
        folder = place / folder.name
        if folder.is_dir():
            return folder
    try:
        side = folder_aside(folder)
        try:
            make(side)
            try:
                side.rename(folder)
            except OSError:
                # Another process was faster; what it made is the same.
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(side, ignore_errors=True)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(
                errno.ENOSPC,
                f"no space is left on the disk of {place} for {name}: free some, or name another "
                "folder with cache=…",
            ) from error
        if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
            raise type(error)(
                f"cannot write to {place} ({error.strerror}): name another folder with cache=…"
            ) from error
        raise
    return folder


def _place() -> Path:
    found = home()
    if found is None:
        raise FileNotFoundError(
            "nobody tells where the home folder is: name a folder for tokens with cache=…"
        )
    return found / ".cache" / "longspan"


@contextmanager
def nothing_kept() -> Iterator[None]:
    """What is made within is gone at the end; what was there before is used as ever."""
    with tempfile.TemporaryDirectory(prefix="longspan-", ignore_cleanup_errors=True) as place:
        token = _ASIDE.set(Path(place))
        try:
            yield
        finally:
            _ASIDE.reset(token)


def hash_of(texts: Iterable[str]) -> str:
    """A key for texts: SHA-256, in hexadecimal digits."""
    digest = hashlib.sha256()
    for text in texts:
        # With its length, so that no two lists of texts read the same.
        own = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(own))
        digest.update(own)
    return digest.hexdigest()


def mapped(path: Path, dtype: torch.dtype) -> Tensor:
    """A file's numbers as a tensor whose memory is the file; writing to it does not reach it."""
    count = path.stat().st_size // dtype.itemsize
    if count == 0:
        return torch.zeros(0, dtype=dtype)
    return torch.from_file(str(path), shared=False, size=count, dtype=dtype)


class Rows(Protocol):
    """Rows of whole numbers by number: `Ragged`, or a list of tensors."""

    def __getitem__(self, number: int, /) -> Tensor: ...

    def __len__(self) -> int: ...


class RaggedWriter:
    """Writes rows of whole numbers of any lengths, as `Ragged` reads them.

    >>> with RaggedWriter(folder, "tokens") as rows: rows.add([4, 2])
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._values = (folder / f"{name}.values").open("wb")
        self._path = folder / f"{name}.ends"
        self._ends = array("q")
        self._count = 0

    def add(self, row: Sequence[int]) -> None:
        """One more row; numbers are below 2³¹."""
        self._values.write(array("i", row).tobytes())
        self._count += len(row)
        self._ends.append(self._count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._values.close()
        if kind is None:
            self._path.write_bytes(self._ends.tobytes())


class Ragged:
    """Rows of whole numbers of any lengths, one after the other.

    Attributes:
        values: of all rows, int32.
        ends: where each ends, int64.
    """

    def __init__(self, values: Tensor, ends: Tensor) -> None:
        self.values, self.ends = values, ends

    @classmethod
    def read(cls, folder: Path, name: str) -> Ragged:
        """Those that `RaggedWriter` wrote, mapped into memory."""
        return cls(
            mapped(folder / f"{name}.values", torch.int32),
            mapped(folder / f"{name}.ends", torch.int64),
        )

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """The same without files."""
        ends = torch.tensor([len(row) for row in rows], dtype=torch.int64).cumsum(0)
        return cls(torch.tensor([own for row in rows for own in row], dtype=torch.int32), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> Tensor:
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} rows, asked for number {number}")
        begin = int(self.ends[number - 1]) if number else 0
        return self.values[begin : int(self.ends[number])]

    def begins(self) -> Tensor:
        """Where each row begins, int64."""
        return torch.cat((self.ends.new_zeros(1), self.ends[:-1]))

    def lengths(self) -> Tensor:
        """Of all rows, int64."""
        return self.ends - self.begins()
