"""Kernels for NVIDIA's Hopper generation, in Gluon: explicit loads by TMA, and warps with a task of
their own. They take what most calls are, one interval a row in half precision; plain Triton takes
everything.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from ...problem import Problem

__all__ = ["available", "backward", "forward", "takes"]


@cache
def available(device: torch.device) -> bool:
    """Whether the device and the installed Triton have what the kernels need."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    return find_spec("triton.experimental.gluon") is not None


def takes(problem: Problem) -> bool:
    """Whether the kernels here compute the problem."""
    if problem.q.device.type != "cuda" or not available(problem.q.device):
        return False
    from . import launch

    return launch.takes(problem)


def forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp `(B, H, N)`."""
    from . import launch

    return launch.forward(problem)


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]]:
    """Gradients of q, k and v, and the wanted ones of learned tensors."""
    from . import launch

    return launch.backward(problem, out, limits, grad, wanted)
