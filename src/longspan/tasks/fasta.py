"""DNA from FASTA files, as documents: BigBird's way of making texts of a genome."""

from __future__ import annotations

import random
from pathlib import Path

from .reading import read_lines

__all__ = ["documents_of", "read_fasta"]

# A piece has so many bases, a document so many pieces.
BASES = (500, 1000)
PIECES = (50, 100)

# The bases, and the letters for "one of these".
LETTERS = set("ACGTURYSWKMBDHVN")


def read_fasta(path: Path) -> list[str]:
    """The sequences of a file, in capitals."""
    found: list[list[str]] = []
    for number, line in enumerate(read_lines(path), 1):
        line = line.strip()
        if line.startswith((">", ";")):
            if line.startswith(">"):
                found.append([])
            continue
        if not line:
            continue
        if not found:
            raise ValueError(f"{path}, line {number}: a FASTA file begins with a line of '>'")
        own = line.upper()
        strange = set(own) - LETTERS
        if strange:
            raise ValueError(f"{path}, line {number}: {min(strange)!r} is not a base")
        found[-1].append(own)
    sequences = ["".join(parts) for parts in found if parts]
    if not sequences:
        raise ValueError(f"{path} has no bases")
    return sequences


def documents_of(sequences: list[str], splits: int, seed: int) -> list[list[str]]:
    """Documents of pieces: each sequence is cut anew, in order, for each of so many splits.

    Pieces have 500 to 1,000 bases, documents 50 to 100 pieces, all drawn by the seed; the last
    ones have what is left.
    """
    found = []
    for split in range(splits):
        for number, sequence in enumerate(sequences):
            source = random.Random(f"fasta {seed} {split} {number}")
            pieces, place = [], 0
            while place < len(sequence):
                step = source.randint(*BASES)
                pieces.append(sequence[place : place + step])
                place += step
            place = 0
            while place < len(pieces):
                count = source.randint(*PIECES)
                found.append(pieces[place : place + count])
                place += count
    return found
