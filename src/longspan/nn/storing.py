"""Tensors and what they mean, in two files: safetensors and JSON; no pickle anywhere."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Pair", "aside", "once", "share"]


class Pair(NamedTuple):
    """Two files that belong together.

    Attributes:
        tensors: name of the file of tensors.
        description: name of the file that says what they are.
        format: number of the form of the description, which is written into it.
        what: of what they are, for messages.
    """

    tensors: str
    description: str
    format: int
    what: str

    def write(self, folder: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
        """Writes both, one after the other; see `aside`. A tensor of several names is stored
        once.
        """
        kept, again = once(tensors)
        path = folder / self.tensors
        try:
            _safetensors().save_file(kept, path)
        except _errors() as error:
            # What the disk says is in the words alone.
            told = re.search(r"\(os error (\d+)\)", str(error))
            number = int(told[1]) if told else errno.EIO
            raise OSError(number, os.strerror(number), str(path)) from error
        text = json.dumps({"format": self.format, **description, "same": again}, indent=2) + "\n"
        (folder / self.description).write_text(text, encoding="utf-8")
        # That of tensors is for its owner alone, as safetensors makes it.
        shutil.copymode(folder / self.description, path)

    def describe(self, caller: str, folder: Path) -> dict[str, Any]:
        """What the description says, if this version reads it."""
        path = folder / self.description
        if not path.is_file():
            raise FileNotFoundError(
                f"{caller}: {folder} has no {self.description}: is it {self.what}?"
            )
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if description.get("format") != self.format:
            raise ValueError(
                f"{caller}: {path} is of format {description.get('format')!r}, this version reads "
                f"{self.format}"
            )
        return description

    def read(self, folder: Path, description: dict[str, Any]) -> dict[str, Tensor]:
        """The tensors, a copy under each of their names."""
        path = folder / self.tensors
        try:
            tensors: dict[str, Tensor] = _safetensors().load_file(path)
        except _errors() as error:
            raise ValueError(f"{path} is not whole: {error}") from error
        again = description["same"].items()
        return tensors | {name: tensors[first].clone() for name, first in again}


@contextmanager
def aside(folder: Path) -> Iterator[Path]:
    """A place to write files in, which come into the folder once all of them are whole: it never
    has half of one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving") as place:
        yield Path(place)
        for path in sorted(Path(place).iterdir()):
            path.replace(folder / path.name)


def once(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A state dict in which a tensor that has several names has the first one alone, and for the
    other names that one.
    """
    first: dict[Any, str] = {}
    found, again = {}, {}
    stored: set[int] = set()
    for name, tensor in state.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        known = first.setdefault(same, name)
        if tensor.numel() and known != name:
            again[name] = known
            continue
        found[name] = tensor.contiguous()
        place = found[name].untyped_storage().data_ptr()
        if place in stored:
            # Another view of what is stored already; a file has no views.
            found[name] = tensor.clone(memory_format=torch.contiguous_format)
        stored.add(place)
    return found, again


def share(module: nn.Module, again: dict[str, str]) -> None:
    """Makes parameters one again that `once` stored once; it gave `again`. Buffers stay apart."""
    own = dict(module.named_parameters(remove_duplicate=False))
    for name, first in again.items():
        if name in own and first in own:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, own[first])


def _errors() -> type[Exception]:
    from safetensors import SafetensorError

    found: type[Exception] = SafetensorError
    return found


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError("models in files need safetensors: pip install safetensors") from error
    return safetensors.torch
