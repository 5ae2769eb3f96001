"""Dropout's random numbers, against the published vectors of Philox 4×32-10."""

from __future__ import annotations

import pytest
import torch

from longspan.kernels.philox import keep, philox

# Known answers of the Random123 library: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    found = philox([torch.tensor(c) for c in counter], [torch.tensor(k) for k in key])
    assert tuple(int(w) for w in found) == words


def test_neighbouring_keys_share_a_draw() -> None:
    j = torch.arange(8)
    zero = torch.tensor(0)
    words = [philox([torch.tensor(c), zero, zero, zero], [zero, zero]) for c in (0, 1)]
    flat = torch.tensor([int(w) for draw in words for w in draw])
    for dropout in (0.1, 0.5, 0.9):
        kept = keep(torch.tensor([0]), dropout, zero, zero, zero, j)
        assert torch.equal(kept, flat >= int(dropout * 2**32))


def test_no_dropout_keeps_all() -> None:
    j = torch.arange(1000)
    assert keep(torch.tensor([5]), 0.0, j * 0, j * 0, -j, j).all()
