"""Estimates that follow the batches of training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, multiprocessing, nn
from torch import distributed as dist
from torch.utils.checkpoint import checkpoint

from longspan.nn import LearnedWindow
from longspan.nn.running import mean_of_all, recomputing

STEPS = 4


def window() -> LearnedWindow:
    torch.manual_seed(0)
    made = LearnedWindow(16, 2, mean_reach=5, max_reach=12, causal=True)
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
    alone = window()
    start = alone.factor.clone()
    for step in range(STEPS):
        x = torch.cat([batch(0, step), batch(1, step)])
        alone(x, x, x)
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
