"""Numbers that are no longer finite: where it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["NOT_AGAIN", "NotFiniteError", "where_it_began"]

NOT_AGAIN = "nothing that could be found again: the same step, repeated, is finite"


class NotFiniteError(ValueError):
    """The loss or a gradient is NaN or infinite.

    Attributes:
        step: the step at which it began, over all stages.
        layer: the part of the model whose output is the first that is not finite.
    """

    def __init__(self, step: int, stage: str, layer: str, loss: float, advice: str) -> None:
        self.step, self.layer = step, layer
        super().__init__(
            f"stage {stage!r}, step {step}: the loss is {loss:g}. It began in {layer}. {advice}"
        )


def where_it_began(
    model: nn.Module, again: Callable[[], Tensor], refused: ValueError | None = None
) -> str:
    """The first part of a model that gives numbers which are not finite, in words.

    Args:
        model: as it was before the step.
        again: makes the forward pass of the step again, and gives its loss.
        refused: why there was no loss; raised again where nothing is found that is not finite.
    """
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the weight {name}, which was not finite before the step"
    bad: list[str] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not bad and not all(_finite(own) for own in _tensors(output)):
                bad.append(name)

        return hook

    parts = [(name, own) for name, own in model.named_modules() if name]
    hooks = [own.register_forward_hook(look(name)) for name, own in parts]
    try:
        model.zero_grad(set_to_none=True)
        loss = again()
    except ValueError:
        if refused is None or not bad:
            raise
    finally:
        for hook in hooks:
            hook.remove()
    if bad:
        return f"the output of {bad[0]}"
    if refused is not None:
        raise refused
    if not _finite(loss):
        return "the loss itself: every layer's output is finite"
    loss.sum().backward()
    grads = [(name, own.grad) for name, own in model.named_parameters() if own.grad is not None]
    # The backward pass comes from the end.
    for name, grad in reversed(grads):
        if not _finite(grad):
            return f"the gradient of {name}; every layer's output is finite"
    return NOT_AGAIN


def _finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())


def _tensors(output: Any) -> list[Tensor]:
    """Scores of −inf are where nothing is allowed; a head's several outputs are left out."""
    return [output] if isinstance(output, Tensor) and output.is_floating_point() else []
