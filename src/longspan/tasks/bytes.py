"""Language modelling of any file, byte by byte."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..errors import describe, need_int
from .batch import NOT_COUNTED, Batch
from .reading import COMPRESSED, path_of, read_bytes, source_of
from .sample import sample
from .task import Examples, Task
from .token_files import cached, mapped

__all__ = ["Bytes", "Stretch"]


class Stretch(NamedTuple):
    """A part of the file.

    Attributes:
        begin: the first byte that is read.
        counted: the first byte that is to be named; it and all after it are.
        end: after the last byte that is to be named.
    """

    begin: int
    counted: int
    end: int


class Bytes(Task):
    """Name every next byte of a file.

    The file is cut into a part to learn from, one to be measured on and one for the end, by
    default 90, 5 and 5 % (enwik8's 90, 5 and 5 million). To learn from, stretches of `length`
    bytes at places drawn by the seed: an example's number decides its place. To be measured on,
    stretches that overlap: of each, the first `context` bytes are only read, and the rest is
    named, so that every byte counts once and has at least so much before it. The context of the
    first bytes of a part lies in the part before.

    Args:
        data: any file, plain, .gz or .xz; None for a small excerpt of enwik8 that ships.
        length: bytes that a model reads at once.
        context: of these, how many are only read when measuring; None for half.
        split: bytes to learn from, to be measured on, for the end; None for 90, 5 and 5 %.
        examples: how many places to learn from; None for eight of them in every `length` bytes.
        seed: decides the places.
        cache: the folder for decompressed files; `~/.cache/longspan` by default.
    """

    name = "bytes"
    objective = "next"
    metric = "bits"
    lower_is_better = True
    vocabulary = 256

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        length: int = 512,
        context: int | None = None,
        split: Sequence[int] | None = None,
        examples: int | None = None,
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> None:
        need_int("bytes: length", length, at_least=2)
        context = length // 2 if context is None else context
        need_int("bytes: context", context, at_least=0)
        if context >= length:
            raise ValueError(f"bytes: context must be below length, got {context} of {length}")
        need_int("bytes: seed", seed)
        path = path_of("bytes: data", data) if data is not None else sample("enwik8_sample.txt.xz")
        self.data = None if data is None else str(data)
        self.files = [source_of(path)]
        self.bytes = _bytes_of(path, self.files[0].sha256, cache)
        parts = _parts(len(self.bytes), split)
        self.length = length
        self.context = context
        self.seed = seed
        # One byte more is read than named, so a part has as many places as this.
        self._places = parts[0] - length
        if self._places < 1:
            raise ValueError(
                f"{path}: {parts[0]:,} bytes to learn from are too few for length={length}"
            )
        if examples is None:
            examples = max(1, 8 * parts[0] // length)
        need_int("bytes: examples", examples, at_least=1)
        self.settings = {
            "length": length,
            "context": context,
            "split": None if split is None else list(split),
            "examples": examples,
            "seed": seed,
        }
        self.train = Examples(examples, self._drawn)
        self.dev = self._in_order(parts[0], parts[0] + parts[1])
        self.test = self._in_order(parts[0] + parts[1], sum(parts))

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Stretches of these numbers."""
        examples = self.examples(split)
        inputs, targets = [], []
        for number in numbers:
            begin, counted, end = examples[number]
            found = self.bytes[begin:end].long()
            inputs.append(found[:-1])
            target = found[1:].clone()
            target[: counted - begin - 1] = NOT_COUNTED
            targets.append(target)
        return Batch.of(inputs, {"tokens": targets}, pad=self.pad, numbers=numbers)

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """Bits a byte, and how many bytes were the model's first choice, in percent."""
        self.examples(split)
        count = sum(count for _, count, _ in outputs.values())
        return {
            "bits": sum(bits for bits, _, _ in outputs.values()) / count,
            "accuracy": 100 * sum(right for _, _, right in outputs.values()) / count,
        }

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each stretch its place in the file and its bits a byte."""
        examples = self.examples(split)
        return [
            {
                "number": number,
                "begin": examples[number].counted,
                "end": examples[number].end,
                "bits": bits / count,
            }
            for number, (bits, count, _) in sorted(outputs.items())
        ]

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """ASCII as it is, other bytes as two hexadecimal digits."""
        return [chr(t) if t < 128 else f"\\x{t:02x}" for t in tokens]

    def _drawn(self, number: int) -> Stretch:
        source = random.Random(f"bytes {self.seed} {number}")
        begin = source.randrange(self._places)
        return Stretch(begin, begin + 1, begin + 1 + self.length)

    def _in_order(self, first: int, last: int) -> Examples[Stretch]:
        """Stretches that name every byte from `first` to before `last` once.

        The bytes that are read lie one before those that are named, so a stretch has
        `context` + 1 of them before the first that counts; the file's first byte never counts.
        """
        first = max(first, 1)
        step = self.length - self.context

        def stretch(number: int) -> Stretch:
            counted = first + number * step
            end = min(counted + step, last)
            return Stretch(max(counted - 1 - self.context, 0), counted, end)

        return Examples(max(0, -(-(last - first) // step)), stretch)


def _bytes_of(path: Path, sha256: str, cache: str | Path | None) -> torch.Tensor:
    """A file's bytes, mapped: those of a compressed one from a copy in the cache."""
    if path.suffix in COMPRESSED:

        def make(folder: Path) -> None:
            (folder / "bytes").write_bytes(read_bytes(path))

        path = cached("bytes", {"sha256": sha256}, make, cache=cache) / "bytes"
    elif path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return mapped(path, torch.uint8)


def _parts(size: int, split: Sequence[int] | None) -> tuple[int, int, int]:
    """How many bytes to learn from, to be measured on, and for the end."""
    if split is None:
        few = size // 20
        return size - 2 * few, few, few
    if not isinstance(split, Sequence) or len(split) != 3:
        raise ValueError(f"bytes: split must be three numbers of bytes, got {describe(split)}")
    for number in split:
        need_int("bytes: split", number, at_least=0)
    if sum(split) > size:
        raise ValueError(f"bytes: split asks for {sum(split):,} bytes of a file of {size:,}")
    return split[0], split[1], split[2]
