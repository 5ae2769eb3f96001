"""Estimates that follow the batches of training, in one process and in several."""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["Standing", "mean_of_all", "recomputing"]


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


class Standing:
    """The value of an estimate with which calls are made, while the estimate moves on behind it.

    Gradient checkpointing makes a call again in its backward pass, and it must be the same call. So
    those whose backward pass is still to come have one value together; the first after them takes
    that of the estimate. A call waits until a gradient comes to what it gave, or nobody can ask for
    one any more. A compiled program always takes the estimate.
    """

    def __init__(self) -> None:
        self._value: Tensor | None = None
        self._waiting: WeakSet[_Call] = WeakSet()

    def __reduce__(self) -> tuple[Any, ...]:
        # The copy of a module has made no calls.
        return Standing, ()

    def now(self, estimate: Tensor) -> Tensor:
        """The value for a call of training that is made now; to ask for it changes nothing."""
        if self._value is not None and self._stands():
            return self._value
        # A copy: the estimate moves on before the gradient comes back.
        return estimate.clone()

    def _stands(self) -> bool:
        return not torch.compiler.is_compiling() and (recomputing() or len(self._waiting) > 0)

    def used(self, value: Tensor, given: Tensor | None) -> None:
        """After a call that was not made again.

        Args:
            value: with which it was made.
            given: what it gave, if calls after it have to wait for its gradient.
        """
        if torch.compiler.is_compiling():
            return
        if len(self._waiting) == 0:
            self._value = value
        if given is not None and given.requires_grad:
            call = _Call()
            self._waiting.add(call)
            # The graph alone holds the call: it is gone when the graph is.
            given.register_hook(partial(self._arrived, call))

    def _arrived(self, call: _Call, gradient: Tensor) -> None:
        self._waiting.discard(call)


class _Call:
    """One that waits for its gradient."""
