"""Which examples a step has: an order that follows from the seed, so that it needs no memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Sampler"]


# Steps among whose examples those of one length are brought together.
POOL = 50


class Sampler:
    """Every example once, in an order of its own for every round over them.

    Examples of a step are those at step · size … (step + 1) · size in the endless list of rounds:
    the number of the step is all there is to know, and several processes share a step's examples.

    Args:
        examples: how many there are.
        seed: of the orders.
        lengths: of the examples; those of a step are then of similar length.
        size: of a step, over all processes; needed with lengths.
    """

    def __init__(
        self, examples: int, seed: int, *, lengths: Sequence[int] | None = None, size: int = 1
    ) -> None:
        if examples < 1:
            raise ValueError("the task has no examples to train on")
        self.examples, self.seed, self.size = examples, seed, size
        self.lengths = None if lengths is None else torch.tensor(lengths)
        self._round, self._order = -1, torch.empty(0, dtype=torch.int64)

    def _at(self, place: int) -> int:
        round_, rest = divmod(place, self.examples)
        if round_ != self._round:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + round_)
            order = torch.randperm(self.examples, generator=generator)
            self._order = self._by_length(order, round_, generator)
            self._round = round_
        return int(self._order[rest])

    def _by_length(self, order: Tensor, round_: int, generator: torch.Generator) -> Tensor:
        """The same examples, sorted inside of each pool, whose steps are then shuffled."""
        if self.lengths is None:
            return order
        # The last step of the round before this one has begun, and takes some of these.
        begun = min(-round_ * self.examples % self.size, self.examples)
        found = [order[:begun]]
        for pool in order[begun:].split(POOL * self.size):
            sorted_ = pool[self.lengths[pool].argsort(stable=True)]
            steps = sorted_.split(self.size)
            places = torch.randperm(len(steps), generator=generator).tolist()
            # What is left over comes last, and the steps after it begin where they should.
            found += sorted((steps[place] for place in places), key=len, reverse=True)
        return torch.cat(found)

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
