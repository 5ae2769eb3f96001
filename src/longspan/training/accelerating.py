"""What Accelerate does for a run: it names the device, and wraps the model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import distributed as dist

from ..nn.global_rows import GlobalRows
from .learner import Learner
from .sharding import shard, sharding_asked

__all__ = ["accelerator_for", "alone", "is_split", "wrapped"]


def accelerator_for(learner: Learner | None = None, *, cpu: bool = False) -> Any:
    """An accelerator for a model; without one, to ask for the device. It never autocasts: that is
    the model's own matter.
    """
    try:
        from accelerate import Accelerator
        from accelerate.state import is_initialized
        from accelerate.utils import DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
    except ImportError as error:
        raise ImportError("training needs accelerate: pip install 'longspan[train]'") from error
    some_rest = learner is not None and _some_rest(learner)
    options = DistributedDataParallelKwargs(find_unused_parameters=some_rest)
    plugin = None
    if sharding_asked():
        # All processes have the weights before they are split: nobody may leave them out.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=_reshard())
    # Accelerate has one precision for a whole process, and asking for another is an error: where a
    # Trainer has set one, it stays.
    precision = None if is_initialized() else "no"
    made = Accelerator(
        mixed_precision=precision, cpu=cpu, kwargs_handlers=[options], fsdp_plugin=plugin
    )
    made.native_amp, made.scaler = False, None
    return made


def wrapped(accelerator: Any, learner: Learner) -> Any:
    """The model to be called in training: the learner itself, one copy of it in each process, or a
    part of it in each (`accelerate launch --use_fsdp`). Its optimiser is made afterwards.
    """
    if not sharding_asked() or not dist.is_initialized():
        return accelerator.prepare_model(learner)
    if os.environ.get("FSDP_OFFLOAD_PARAMS", "false").lower() == "true":
        raise ValueError(
            "weights are not kept on the CPU while a GPU trains: leave --fsdp_offload_params out"
        )
    shard(learner, accelerator.device, reshard=_reshard())
    return learner


@contextmanager
def _not_reduced(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def is_split(model: Any) -> bool:
    """Whether processes share the weights out among them (FSDP)."""
    return hasattr(model, "set_requires_gradient_sync")


def alone(accelerator: Any, model: Any) -> AbstractContextManager[Any]:
    """Within it, processes keep their gradients to themselves."""
    if is_split(model):
        return _not_reduced(model)
    found: AbstractContextManager[Any] = accelerator.no_sync(model)
    return found


def _reshard() -> bool:
    """Accelerate's option, in the words of FSDP 1 or 2."""
    asked = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower()
    return asked not in ("false", "shard_grad_op", "no_reshard", "no_shard")


def _some_rest(learner: Learner) -> bool:
    """Whether some weights may have no part in a batch: those of global tokens, where it has
    none.
    """
    windows = [own for own in learner.mechanisms() if isinstance(own, GlobalRows)]
    return any(own.global_projections for own in windows)
