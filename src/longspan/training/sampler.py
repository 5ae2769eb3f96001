"""Which examples a step has: an order that follows from the seed, so that it needs no memory."""

from __future__ import annotations

import torch

__all__ = ["Sampler"]


class Sampler:
    """Every example once, in an order of its own for every round over them.

    Examples of a step are those at step · size … (step + 1) · size in the endless list of rounds:
    the number of the step is all there is to know, and several processes share a step's examples.

    Args:
        examples: how many there are.
        seed: of the orders.
    """

    def __init__(self, examples: int, seed: int) -> None:
        if examples < 1:
            raise ValueError("the task has no examples to train on")
        self.examples, self.seed = examples, seed
        self._round, self._order = -1, torch.empty(0, dtype=torch.int64)

    def _at(self, place: int) -> int:
        round_, rest = divmod(place, self.examples)
        if round_ != self._round:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + round_)
            self._order = torch.randperm(self.examples, generator=generator)
            self._round = round_
        return int(self._order[rest])

    def step(
        self, step: int, batch: int, accumulate: int, process: int, processes: int
    ) -> list[list[int]]:
        """The examples of one process in a step: `accumulate` lists of `batch` numbers."""
        size = batch * accumulate * processes
        first = step * size + process * batch * accumulate
        return [
            [self._at(first + own * batch + place) for place in range(batch)]
            for own in range(accumulate)
        ]
