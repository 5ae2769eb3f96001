"""Estimates that follow the batches of training."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, multiprocessing, nn
from torch import distributed as dist
from torch.utils.checkpoint import checkpoint

from longspan.nn import LearnedWindow
from longspan.nn.mechanism import NO_SETTING
from longspan.nn.reach_budget import ReachBudget
from longspan.nn.running import mean_of_all, recomputing

STEPS = 4


def window(**options: Any) -> LearnedWindow:
    torch.manual_seed(0)
    made = LearnedWindow(16, 2, mean_reach=5, max_reach=12, **(options or {"causal": True}))
    nn.init.normal_(made.U_d, std=2.0)
    return made


def batch(process: int, step: int) -> Tensor:
    """Of each process another one, and of another size."""
    generator = torch.Generator().manual_seed(10 * step + process)
    return torch.randn(1 + process, 2, 20, 8, generator=generator)


def train(process: int, folder: Path) -> None:
    """What one of two processes does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=process, world_size=2)
    made = window()
    for step in range(STEPS):
        x = batch(process, step)
        made(x, x, x)
    (folder / str(process)).write_text(float(made.factor).hex())
    dist.destroy_process_group()


def test_two_processes_follow_one_estimate(tmp_path: Path) -> None:
    """That of one process with both batches, bit by bit the same in the two."""
    multiprocessing.start_processes(train, (tmp_path,), nprocs=2, start_method="spawn")
    found, other = (float.fromhex((tmp_path / name).read_text()) for name in "01")
    assert found == other
    alone, budget = window(), ReachBudget("reach", 5, 12, 5, causal=True, sided=False)
    start = alone.factor.clone()
    for step in range(STEPS):
        # Each batch by itself, as there: products of matrices of other sizes have another rounding.
        shares = torch.cat([alone.shares(batch(process, step)).detach() for process in (0, 1)])
        alone.factor.copy_(budget.followed(alone.factor, shares, NO_SETTING))
    assert found == pytest.approx(float(alone.factor), rel=1e-12)
    assert not torch.equal(alone.factor, start)


def test_one_process_alone() -> None:
    values = torch.tensor([1.0, 2.0, 6.0, torch.inf])
    assert float(mean_of_all(values, torch.tensor([True, True, True, False]))) == 3.0
    assert mean_of_all(values, torch.zeros(4, dtype=torch.bool)).isnan()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_call_made_again_is_the_same_call(reentrant: bool) -> None:
    """The factor moves once a call, and the gradient is that of the factor that was used."""
    found = []
    for checkpointed in (False, True):
        made, gradients = window(), []
        again: list[bool] = []
        made.register_forward_pre_hook(lambda *_, again=again: again.append(recomputing()))
        for _ in range(3):
            x = [batch(1, seed).requires_grad_() for seed in range(3)]
            y = checkpoint(made, *x, use_reentrant=reentrant) if checkpointed else made(*x)
            y.square().sum().backward()
            gradients += [each.grad for each in x]
        assert again == ([False, True] if checkpointed else [False]) * 3
        found.append([*gradients, made.factor, made.W_p.grad, made.U_d.grad])
    assert len(found[0]) == 12
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def in_one_pass(call: Callable[[int], Tensor]) -> None:
    (call(0) + call(1)).backward()


def first_come_first_served(call: Callable[[int], Tensor]) -> None:
    first, second = call(0), call(1)
    first.backward()
    third = call(2)
    second.backward()
    third.backward()


@pytest.mark.parametrize("order", [in_one_pass, first_come_first_served])
@pytest.mark.parametrize("options", [{"causal": True}, {"pooled": True}])
def test_calls_before_a_backward_pass_are_made_again_as_they_were(
    options: dict[str, Any], order: Callable[[Callable[[int], Tensor]], None]
) -> None:
    found = []
    for checkpointed in (False, True):
        made = window(**options)
        given: list[Tensor] = []

        def call(
            seed: int, made: Any = made, again: bool = checkpointed, given: Any = given
        ) -> Any:
            x = [batch(1, 3 * seed + number).requires_grad_() for number in range(3)]
            given += x
            y = checkpoint(made, *x, use_reentrant=False) if again else made(*x)
            return y.square().sum()

        for _ in range(3):
            order(call)
        found.append([*(x.grad for x in given), made.factor, made.W_p.grad, made.U_d.grad])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_calls_that_wait_for_their_gradients_share_a_factor() -> None:
    made, x = window(), batch(1, 0)

    def used() -> Tensor:
        """The factor of the last call."""
        assert made.last_reach is not None
        return (made.last_reach.double() / made.shares(x).double()).detach().amax()

    start = made.factor.clone()
    first = made(x, x, x)
    moved = made.factor.clone()
    second = made(x, x, x)
    assert not torch.equal(moved, start) and not torch.equal(made.factor, moved)
    torch.testing.assert_close(used(), start[0])
    # In evaluation it is the estimate; and those that wait are not changed.
    made.eval()(x, x, x)
    torch.testing.assert_close(used(), made.factor[0])
    first.sum().backward()
    made.train()(x, x, x)
    torch.testing.assert_close(used(), start[0])
    # Nobody asks for its gradient any more.
    del second
    estimate = made.factor.clone()
    made(x, x, x)
    torch.testing.assert_close(used(), estimate[0])


def test_a_copy_waits_for_nothing() -> None:
    made, x = window(), batch(1, 0)
    waiting = made(x, x, x)
    for copied in (deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(copied.factor, made.factor)
        copied(x, x, x)
        reach = (copied.shares(x).double() * made.factor).clamp(max=12).float()
        torch.testing.assert_close(copied.last_reach, reach)
    waiting.sum().backward()


def test_loading_takes_the_estimate_that_was_saved() -> None:
    made, x = window(), batch(1, 0)
    waiting = made(x, x, x)
    state = made.state_dict()
    assert torch.equal(state["factor"], made.factor)
    other = window()
    other.load_state_dict({**state, "factor": torch.tensor([2.0], dtype=torch.float64)})
    made.load_state_dict(other.state_dict())
    for each in (made, other):
        each(x, x, x)
    assert made.last_reach is not None and other.last_reach is not None
    assert torch.equal(made.last_reach, other.last_reach)
    del waiting
