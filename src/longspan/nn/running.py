"""Estimates that follow the batches of training, in one process and in several."""

from __future__ import annotations

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["mean_of_all", "recomputing"]


def mean_of_all(values: Tensor) -> Tensor:
    """The mean over all values of all processes, so that an estimate that follows it stays the same
    in each of them. They have to call it together; how many values each of them has may differ.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return values.mean()
    whole = torch.stack([values.sum(), torch.full_like(values.sum(), values.numel())])
    dist.all_reduce(whole)
    return whole[0] / whole[1]


def recomputing() -> bool:
    """Whether this is a call that was made before, and is made again for its gradient (gradient
    checkpointing): it runs inside a backward pass.
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
