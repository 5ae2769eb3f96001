"""The two passes of a call, forward and backward, once for whoever runs them: an operator of a
traced program (`ops`), or autograd itself (`eager`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..fixed_order import summed_to
from ..kernels.problem import ALPHA, limits_dtype
from ..weights.conversions import NARROWEST
from .checks import check_values
from .dispatch import choose
from .encoding import Meaning
from .problems import Settings, problem_of

__all__ = ["backward", "forward", "with_learned"]


def forward(
    q: Tensor, k: Tensor, v: Tensor, meaning: Meaning, settings: Settings, backend: str
) -> tuple[Tensor, Tensor]:
    """Attention, and every row's threshold, which its backward needs."""
    if q.device.type == "cpu":
        check_values(meaning, q.shape[2], k.shape[2])
    with _WithoutAutocast(q.device.type):
        problem = problem_of(q, k, v, meaning, settings)
        _, module = choose(problem, backend)
        out, limits = module.forward(problem)
    dtype = limits_dtype(q)
    return out, limits if limits.dtype == dtype else limits.to(dtype)


def backward(
    grad: Tensor,
    out: Tensor,
    limits: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    meaning: Meaning,
    settings: Settings,
    backend: str,
    learned: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor]:
    """Gradients of q, k, v, and of those learned tensors that are wanted; `learned` and `wanted` go
    in the order of the encoding.
    """
    names = _names_of_learned(meaning)
    asked = frozenset(name for name, want in zip(names, wanted, strict=True) if want)
    with _WithoutAutocast(q.device.type):
        problem = problem_of(q, k, v, meaning, settings)
        _, module = choose(problem, backend)
        dq, dk, dv, sums = module.backward(problem, out, limits, grad, asked)
    found = [dq, dk, dv]
    for name, tensor, want in zip(names, learned, wanted, strict=True):
        if want:
            total = sums.get(name)
            made = torch.zeros_like(tensor) if total is None else _summed(total, name, tensor)
            if name[1] == "variance" and getattr(meaning.weights[name[0]], "normalized", False):
                # The height of a bell that is no narrower than others does not follow it either.
                made = torch.where((tensor > 0) & (tensor < NARROWEST), 0, made)
            found.append(made)
    return found


def with_learned(
    played: Sequence[Tensor], learned: Sequence[Tensor], wanted: Sequence[bool]
) -> list[Tensor]:
    """Gradients as `backward` gives them, from those of a call that was played: dq, dk, dv, and
    that of every bell's variance.
    """
    found = list(played[:3])
    for total, tensor, want in zip(played[3:], learned, wanted, strict=True):
        if want:
            found.append(_summed(total, (0, "variance"), tensor))
    return found


class _WithoutAutocast:
    """Sums are kept in float32 under autocast too. `torch.autocast(enabled=False)` does the same,
    and asks so much about its arguments that a short call would notice.
    """

    __slots__ = ("enabled", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        self.enabled = torch.is_autocast_enabled(self.kind)
        if self.enabled:
            torch.set_autocast_enabled(self.kind, False)

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            torch.set_autocast_enabled(self.kind, True)


def _names_of_learned(meaning: Meaning) -> list[tuple[int, str]]:
    """Number and name of every learned tensor, in the order of the encoding."""
    names = []
    for number, weight in enumerate(meaning.weights):
        for field in weight.fields:
            if field in weight.learned and isinstance(getattr(weight, field), Tensor):
                names.append((number, field))
    return names + ([ALPHA] if isinstance(meaning.normalizer.alpha, Tensor) else [])


def _summed(total: Tensor, name: tuple[int, str], tensor: Tensor) -> Tensor:
    """A gradient in a kernel's shape, with broadcast dims whole, as that of the tensor itself."""
    if total.shape == tensor.shape and total.dtype == tensor.dtype:
        return total
    shape = tuple(tensor.shape)
    if name[1] == "span" and tensor.dim() == 1:
        shape = (*shape, 1)
    aligned = (1,) * (total.dim() - len(shape)) + shape
    return summed_to(total, aligned).reshape(tensor.shape).to(tensor.dtype)
