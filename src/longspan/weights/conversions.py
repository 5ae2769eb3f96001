"""Between a bell's variance and its reach at a threshold."""

from __future__ import annotations

import math
from typing import overload

import torch
from torch import Tensor

from ..errors import describe, need_number

__all__ = ["NARROWEST", "check_threshold", "reach_of", "variance_of"]

# Keeps a distance that rounding put just outside its own edge: see `reach_of`.
SLACK = 1e-3
FARTHEST = 2**30
# A narrower bell counts as this one: a token next to its own has exp(−5·10¹¹) of it, and float32
# can still square the variance.
NARROWEST = 1e-12


@overload
def reach_of(variance: float, threshold: float) -> int: ...
@overload
def reach_of(variance: Tensor, threshold: float) -> Tensor: ...
def reach_of(variance: float | Tensor, threshold: float) -> int | Tensor:
    """The farthest distance d, in tokens, at which exp(−d²/(2·variance)) is at least the threshold.

    ⌊√(−2·variance·ln threshold) + 10⁻³⌋, in float64: the slack makes `reach_of(variance_of(w, k),
    k) == w` for every whole w, also when the variance was rounded to float32 on the way (up to
    30,000 tokens).

    Returns:
        An int for a number, an int32 tensor without gradient for a tensor (0 where the variance is
        NaN or negative).
    """
    check_threshold("reach_of: threshold", threshold)
    if isinstance(variance, Tensor):
        _need_real("reach_of: variance", variance)
        wide = (variance.detach().double() * (-2 * math.log(threshold))).clamp(min=0).sqrt()
        return (wide + SLACK).floor().nan_to_num(0, FARTHEST).clamp(max=FARTHEST).to(torch.int32)
    need_number("reach_of: variance", variance)
    if not variance > 0:
        raise ValueError(f"reach_of: variance must be above 0, got {variance}")
    return math.floor(min(math.sqrt(-2 * variance * math.log(threshold)) + SLACK, FARTHEST))


@overload
def variance_of(reach: float, threshold: float) -> float: ...
@overload
def variance_of(reach: Tensor, threshold: float) -> Tensor: ...
def variance_of(reach: float | Tensor, threshold: float) -> float | Tensor:
    """The variance whose bell falls to the threshold at distance `reach`: reach² / (−2·ln
    threshold).

    128 tokens at 0.5 are 11818.6. Differentiable; whole-number tensors give float64.
    """
    check_threshold("variance_of: threshold", threshold)
    if isinstance(reach, Tensor):
        _need_real("variance_of: reach", reach)
        # In float64, so that a float32 result is rounded only once.
        found = reach.double().square() / (-2 * math.log(threshold))
        return found.to(reach.dtype) if reach.is_floating_point() else found
    need_number("variance_of: reach", reach)
    if not reach >= 0:
        raise ValueError(f"variance_of: reach must be at least 0, got {reach}")
    return reach * reach / (-2 * math.log(threshold))


def _need_real(name: str, value: Tensor) -> None:
    if value.dtype == torch.bool or value.is_complex():
        raise TypeError(
            f"{name} must be a number or a tensor of real numbers, got {describe(value)}"
        )


def check_threshold(name: str, threshold: float) -> None:
    """Raises unless the threshold is a number between 0 and 1."""
    if isinstance(threshold, Tensor):
        raise TypeError(f"{name} must be a number, got {describe(threshold)}")
    need_number(name, threshold)
    if not 0 < threshold < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {threshold}")
