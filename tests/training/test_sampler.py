"""Orders of examples."""

from __future__ import annotations

import pytest
import torch

from longspan.training.sampler import POOL, Sampler


def steps(sampler: Sampler, count: int, batch: int, processes: int = 1) -> list[list[int]]:
    return [
        [n for own in range(processes) for n in sampler.step(k, batch, 1, own, processes)[0]]
        for k in range(count)
    ]


@pytest.mark.parametrize("by_length", [False, True])
def test_every_round_has_every_example_once(by_length: bool) -> None:
    lengths = torch.randint(5, 99, (103,), generator=torch.Generator().manual_seed(0)).tolist()
    sampler = Sampler(103, 3, lengths=lengths if by_length else None, size=4)
    seen = [number for step in steps(sampler, 3 * 103, 1) for number in step]
    rounds = [seen[:103], seen[103:206], seen[206:]]
    assert all(sorted(own) == list(range(103)) for own in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


def test_any_step_can_be_asked_for_at_any_time() -> None:
    lengths = list(range(100))
    one, other = (Sampler(100, 1, lengths=lengths, size=8) for _ in range(2))
    want = steps(one, 30, 4, processes=2)
    for step in (29, 3, 14):
        assert [n for own in (0, 1) for n in other.step(step, 4, 1, own, 2)[0]] == want[step]


def test_steps_have_examples_of_similar_length() -> None:
    source = torch.Generator().manual_seed(0)
    lengths = torch.randint(10, 400, (20_000,), generator=source).tolist()
    size = 32

    def padding(sampler: Sampler, lengths: list[int] = lengths, count: int = 200) -> float:
        taken = [[lengths[n] for n in step] for step in steps(sampler, count, size)]
        real = sum(map(sum, taken))
        return 1 - real / sum(size * max(step) for step in taken)

    grouped = Sampler(len(lengths), 0, lengths=lengths, size=size)
    assert padding(Sampler(len(lengths), 0)) > 0.4
    assert padding(grouped) < 0.03
    # In every round, of which 20,004 examples leave a step with 4 begun.
    more = [*lengths, 10, 99, 200, 300]
    odd = Sampler(len(more), 0, lengths=more, size=size)
    assert padding(odd, more, 3 * len(more) // size) < 0.03
    # Steps do not go from short to long.
    means = [sum(lengths[n] for n in step) / size for step in steps(grouped, POOL, size)]
    assert means != sorted(means) and sorted(means)[0] < 50 < 350 < sorted(means)[-1]
