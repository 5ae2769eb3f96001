"""Is a call one that nobody traces or transforms, of tensors that are PyTorch's own?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

__all__ = ["PLAIN", "has_tangent", "observed", "plain", "transformed"]

PLAIN = (Tensor, nn.Parameter)


def transformed() -> bool:
    """Is a transform of `torch.func` active?"""
    return torch._C._are_functorch_transforms_active()


def observed() -> bool:
    """Does anything want to see the operator: a dispatch mode (fake tensors, `make_fx`, counters of
    FLOPs), a transform of `torch.func`, a tracer, or forward differentiation?
    """
    return (
        is_in_torch_dispatch_mode()
        or transformed()
        or forward_ad._current_level >= 0
        or torch._C._is_tracing()
    )


def plain(tensors: Sequence[Tensor | None]) -> bool:
    """Are all of these tensors of PyTorch's own, not of a class that sees its operators?"""
    return all([x is None or type(x) in PLAIN for x in tensors])


def has_tangent(tensors: Sequence[Tensor]) -> bool:
    """Is one of these differentiated forwards?"""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)
