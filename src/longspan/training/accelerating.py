"""What Accelerate does for a run: it names the device, and wraps the model."""

from __future__ import annotations

from typing import Any

from ..nn import SlidingWindow
from .learner import Learner

__all__ = ["accelerator_for"]


def accelerator_for(learner: Learner | None = None) -> Any:
    """An accelerator for a model; without one, to ask for the device."""
    try:
        from accelerate import Accelerator
        from accelerate.utils import DistributedDataParallelKwargs
    except ImportError as error:
        raise ImportError("training needs accelerate: pip install 'longspan[train]'") from error
    some_rest = learner is not None and _some_rest(learner)
    options = DistributedDataParallelKwargs(find_unused_parameters=some_rest)
    # Autocast is the model's own matter: accelerate has one for a whole process.
    return Accelerator(mixed_precision="no", kwargs_handlers=[options])


def _some_rest(learner: Learner) -> bool:
    """Whether some weights may have no part in a batch: those of global tokens, where it has
    none.
    """
    windows = [own for own in learner.mechanisms() if isinstance(own, SlidingWindow)]
    return any(own.global_projections for own in windows)
