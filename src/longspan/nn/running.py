"""Estimates that follow the batches of training, in one process and in several."""

from __future__ import annotations

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["mean_of_all", "recomputing"]


def mean_of_all(values: Tensor, counts: Tensor) -> Tensor:
    """The mean over all values of all processes that count, so that an estimate that follows it
    stays the same in each of them; NaN where none does. They have to call it together; how many
    values each of them has may differ.
    """
    counted = torch.where(counts, values, 0.0).sum()
    whole = torch.stack([counted, counts.sum().to(counted.dtype)])
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(whole)
    return whole[0] / whole[1]


def recomputing() -> bool:
    """Whether this is a call that was made before, and is made again for its gradient (gradient
    checkpointing): it runs inside a backward pass.
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
