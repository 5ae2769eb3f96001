"""Dropout that every backend draws alike: Philox 4×32-10, keyed by a seed and counted by (b, h, i,
j).

The four words of one draw serve four neighbouring keys: the pair (i, j) takes word j mod 4 of the
counter (⌊j/4⌋, i, h, b), and is kept when that word is at least ⌊dropout·2³²⌋. i is taken mod 2³²,
as it may be negative.

Reference:
    Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["keep", "philox"]

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def keep(seed: Tensor, dropout: float, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Which pairs dropout keeps, bool in the broadcast shape of the four int64 counters.

    Args:
        seed: int64 `(1,)`.
        dropout: the share that goes, in [0, 1).
        b: sample of each pair.
        h: query head.
        i: query position.
        j: key position.
    """
    words = philox([j >> 2, i & WORD, h, b], [seed & WORD, (seed >> 32) & WORD])
    lane = j & 3
    word = torch.where(
        lane < 2,
        torch.where(lane == 0, words[0], words[1]),
        torch.where(lane == 2, words[2], words[3]),
    )
    return word >= int(dropout * (WORD + 1))


def philox(counter: list[Tensor], key: list[Tensor]) -> list[Tensor]:
    """Four random words for each counter of four words, under a key of two; all are 32-bit numbers
    in int64.
    """
    for _ in range(ROUNDS):
        counter = _mixed(counter, key)
        key = [(k + step) & WORD for k, step in zip(key, KEY_STEPS, strict=True)]
    return counter


def _mixed(counter: list[Tensor], key: list[Tensor]) -> list[Tensor]:
    """One round. A product wraps around in 64 bits, which leaves both 32-bit halves right."""
    first, second = counter[0] * MULTIPLIERS[0], counter[2] * MULTIPLIERS[1]
    return [
        ((second >> 32) & WORD) ^ counter[1] ^ key[0],
        second & WORD,
        ((first >> 32) & WORD) ^ counter[3] ^ key[1],
        first & WORD,
    ]
