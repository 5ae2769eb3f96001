"""A generated task whose answer lies at a known distance: can a mechanism reach that far?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import need_int
from .batch import NOT_COUNTED, Batch
from .task import Examples, Task

__all__ = ["Recall"]

# Tokens that are neither values nor the question; a few are enough to look through.
NOISE = 16


class Recall(Task):
    """Name the one value that was seen `distance` tokens before the question.

    An example is `length` tokens of noise. The last one is the question; the token `distance`
    before it is one of `vocabulary` values, which occur nowhere else. A model that cannot reach
    so far is right once in `vocabulary`. Only the question's next token is asked.

    Tokens: 0 pads, 1 is the question, then come the values, then the noise.

    Args:
        data: must be None; nothing is read.
        distance: from the question back to the value.
        length: tokens of an example; at least distance + 1.
        vocabulary: how many values there are.
        examples: to learn from.
        dev_examples: to be measured on.
        seed: decides all examples.
        cache: not used; every task takes one.
    """

    name = "recall"
    objective = "next"
    metric = "accuracy"

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        distance: int = 64,
        length: int = 128,
        vocabulary: int = 16,
        examples: int = 100_000,
        dev_examples: int = 500,
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> None:
        if data is not None:
            raise ValueError(f"recall is generated and reads no data, got data={str(data)!r}")
        need_int("recall: distance", distance, at_least=1)
        need_int("recall: vocabulary", vocabulary, at_least=2)
        need_int("recall: examples", examples, at_least=1)
        need_int("recall: dev_examples", dev_examples, at_least=1)
        need_int("recall: seed", seed)
        need_int("recall: length", length)
        if length <= distance:
            raise ValueError(
                f"recall: length must be at least distance + 1 = {distance + 1}, got {length}"
            )
        self.distance = distance
        self.length = length
        self.values = vocabulary
        self.vocabulary = 2 + vocabulary + NOISE
        self.seed = seed
        self.data = None
        self.files = []
        self.settings = {
            "distance": distance,
            "length": length,
            "vocabulary": vocabulary,
            "examples": examples,
            "dev_examples": dev_examples,
            "seed": seed,
        }
        self.train = Examples(examples, lambda number: self._example("train", number))
        self.dev = Examples(dev_examples, lambda number: self._example("dev", number))

    def batch(self, numbers: Sequence[int], split: str = "train") -> Batch:
        """Examples of these numbers; one target each, at the last token."""
        tokens = torch.tensor([self.examples(split)[number] for number in numbers])
        targets = torch.full_like(tokens, NOT_COUNTED)
        targets[:, -1] = tokens[:, -1 - self.distance]
        return Batch(
            tokens=tokens,
            real=torch.ones_like(tokens, dtype=torch.bool),
            targets={"tokens": targets},
            numbers=list(numbers),
        )

    def score(self, outputs: Mapping[int, Any], split: str = "dev") -> dict[str, float]:
        """How many values were named, in percent, and the bits that a value took."""
        self.examples(split)
        return {
            "accuracy": 100 * sum(right for _, _, right in outputs.values()) / len(outputs),
            "bits": sum(bits for bits, _, _ in outputs.values()) / len(outputs),
        }

    def predictions(self, outputs: Mapping[int, Any], split: str = "dev") -> list[dict[str, Any]]:
        """For each example the value, and whether it was named."""
        examples = self.examples(split)
        return [
            {
                "number": number,
                "value": self.texts([examples[number][-1 - self.distance]])[0],
                "right": bool(right),
                "bits": bits,
            }
            for number, (bits, _, right) in sorted(outputs.items())
        ]

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """`?` for the question, `=0`, `=1`, … for values, and letters for noise."""
        return [self._text(token) for token in tokens]

    def _text(self, token: int) -> str:
        if token < 2:
            return "_?"[token]
        if token < 2 + self.values:
            return f"={token - 2}"
        return chr(ord("a") + token - 2 - self.values)

    def _example(self, split: str, number: int) -> list[int]:
        # Python's generator gives the same from a text as its seed in every version and place.
        source = random.Random(f"recall {self.seed} {split} {number}")
        first = 2 + self.values
        tokens = [first + source.randrange(NOISE) for _ in range(self.length - 1)]
        tokens.append(1)
        tokens[-1 - self.distance] = 2 + source.randrange(self.values)
        return tokens
