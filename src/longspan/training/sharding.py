"""Models that are split over processes: PyTorch's `fully_shard`, which is FSDP2.

Every block is split by itself, and what is outside of blocks together. A checkpoint, an evaluation
and the search for a number that is not finite have the model whole, as one process has it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ..models.block import Block
from ..nn.global_rows import GlobalRows
from .learner import Learner

__all__ = ["is_sharded", "like", "shard", "sharding_asked", "unsharded", "whole", "whole_state"]

# Where a learner that is split keeps the one that has its weights for a while.
FRAME = "_frame"


def sharding_asked() -> bool:
    """Whether the processes were started with `accelerate launch --use_fsdp`."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def shard(learner: Learner, device: torch.device, *, reshard: bool) -> None:
    """Splits a model over all processes, each of which has the same weights.

    Args:
        reshard: whether gathered weights are given back between forward and backward pass.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    frame = copy.deepcopy(learner)
    _without_weights(frame)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in learner.blocks():
        own: Any = block
        own.forward = partial(_with_all_weights, block, block.forward)
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    # What the first and the last layer need is there from the beginning to the end.
    fully_shard(learner, mesh=mesh, reshard_after_forward=False)
    # Not as a part: it has no weights of its own.
    learner.__dict__[FRAME] = frame


def is_sharded(learner: Learner) -> bool:
    return FRAME in learner.__dict__


def _without_weights(frame: nn.Module) -> None:
    """Takes the memory of all weights; buffers stay."""
    for part in frame.modules():
        for name, own in part._parameters.items():
            if own is not None:
                empty = torch.empty_like(own, device="meta")
                part._parameters[name] = nn.Parameter(empty, own.requires_grad)


def _with_all_weights(block: Block, forward: Any, *inputs: Any) -> Tensor:
    """What a block gives, with every weight in its graph: processes reduce the same gradients,
    though those of global tokens have no part in a batch that has none.
    """
    y: Tensor = forward(*inputs)
    mechanism = block.attention.mechanism
    if torch.is_grad_enabled() and isinstance(mechanism, GlobalRows):
        for own in mechanism.parameters():
            y = y + 0.0 * own.flatten()[0]
    return y


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be split, in one piece; all processes call it."""
    gather = getattr(tensor, "full_tensor", None)
    found: Tensor = tensor if gather is None else gather()
    return found


def like(tensor: Tensor, weight: Tensor) -> Tensor:
    """This process's part of a tensor, where the weight that it belongs to is split."""
    if not hasattr(weight, "full_tensor") or tensor.shape != weight.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(weight, DTensor)
    there = tensor.to(weight.device)
    # Every process has read the same file.
    return distribute_tensor(there, weight.device_mesh, weight.placements, src_data_rank=None)


def whole_state(
    learner: Learner, *, keep: bool = True, device: torch.device | None = None
) -> dict[str, Tensor]:
    """The weights by name in one piece, those of several names once; all processes call it.

    Args:
        keep: whether this process wants them; others help to gather.
        device: where those of a split model are wanted; None is the CPU.
    """
    if not is_sharded(learner):
        return learner.state_dict()
    there = torch.device("cpu") if device is None else device
    known: dict[int, Tensor] = {}
    found: dict[str, Tensor] = {}
    for name, own in learner.state_dict(keep_vars=True).items():
        if id(own) not in known:
            one = whole(own.detach())
            known[id(own)] = one.to(there) if keep else one.new_empty(0)
        found[name] = known[id(own)]
    return found if keep else {}


@contextmanager
def unsharded(learner: Learner) -> Iterator[Learner]:
    """The model as one process has it, for as long as it is wanted; all processes call it.

    Where it is split, that is another one with the same weights.
    """
    frame: Learner | None = learner.__dict__.get(FRAME)
    if frame is None:
        yield learner
        return
    device = next(learner.parameters()).device
    frame.load_state_dict(whole_state(learner, device=device), assign=True)
    frame.in_bf16 = learner.in_bf16
    try:
        yield frame.train(learner.training)
    finally:
        _without_weights(frame)
