"""Kernels for NVIDIA's Hopper generation, in Gluon: explicit loads by TMA, and warps with a task of
their own. They take what most calls are, one interval a row in half precision; plain Triton takes
everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...problem import BellTerm, Problem

if TYPE_CHECKING:
    from .replay import Tape

__all__ = ["available", "backward", "forward", "noted", "takes"]


@cache
def available(device: torch.device) -> bool:
    """Whether the device and the installed Triton have what the kernels need."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != 9:
        return False
    return find_spec("triton.experimental.gluon") is not None


def takes(problem: Problem) -> bool:
    """Whether the kernels here compute the problem."""
    if not available(problem.q.device):
        return False
    from . import launch

    return launch.takes(problem)


def forward(problem: Problem) -> tuple[Tensor, Tensor] | None:
    """Attention `(B, H, N, Dv)`, and each row's log-sum-exp `(B, H, N)`; None for a problem that
    the kernels here do not compute.
    """
    if not available(problem.q.device):
        return None
    from . import replay

    inputs = (problem.q, problem.k, problem.v, *_learned(problem))
    found = replay.played(problem, inputs, "forward", partial(_forward, problem))
    return None if found is None else (found[0], found[1])


def _forward(problem: Problem) -> tuple[Tensor, ...] | None:
    from . import launch

    return launch.forward(problem) if launch.takes(problem) else None


def backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor, wanted: frozenset[tuple[int, str]]
) -> tuple[Tensor, Tensor, Tensor, dict[tuple[int, str], Tensor]] | None:
    """Gradients of q, k and v, and the wanted ones of learned tensors; None for a problem that the
    kernels here do not compute.
    """
    if not available(problem.q.device):
        return None
    from . import replay

    given = out, limits, grad
    inputs = (problem.q, problem.k, problem.v, *given, *_learned(problem))
    found = replay.played(problem, inputs, "backward", partial(_backward, problem, *given))
    if found is None:
        return None
    dq, dk, dv, *sums = found
    names = [(term.number, "variance") for term in problem.terms]
    learned = dict(zip(names, sums, strict=True))
    return dq, dk, dv, {name: total for name, total in learned.items() if name in wanted}


def _backward(
    problem: Problem, out: Tensor, limits: Tensor, grad: Tensor
) -> tuple[Tensor, ...] | None:
    from . import launch

    return launch.backward(problem, out, limits, grad) if launch.takes(problem) else None


def noted(problem: Problem, inputs: Sequence[Tensor], which: str) -> Tape | None:
    """What a call launched before, to be played with other tensors, where that is known.

    Args:
        inputs: q, k, v and, of a backward, the output, the limits and the output's gradient; then
            the bell's variance, if there is one.
        which: `"forward"` or `"backward"`.
    """
    if not available(problem.q.device):
        return None
    from . import replay

    return replay.noted(problem, inputs, which)


def _learned(problem: Problem) -> list[Tensor]:
    return [term.given for term in problem.terms if isinstance(term, BellTerm)]
