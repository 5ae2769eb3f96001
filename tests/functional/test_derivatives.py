"""Derivatives that there are not: nobody gets a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import longspan as ls
from longspan.kernels import cpu
from longspan.patterns import Window
from longspan.weights import Bell

BACKENDS = ["reference", "torch", "auto", *(["cpu"] if cpu.available() else [])]


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, 40, 8) for _ in range(3)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_derivative_raises(backend: Any) -> None:
    """Also where the first one is in the sum, and asked for to one input alone."""
    q, k, v = inputs()
    q.requires_grad_()
    y = ls.attention(q, k, v, Window(5, 5), backend=backend)
    (grad,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"twice|Trying to backward through"):
        torch.autograd.grad(y.sum() + grad.square().sum(), q)


# Torch prepares for such derivatives by what it warns of itself.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forward_derivative_raises(backend: Any, learns: bool) -> None:
    q, k, v = inputs()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q.requires_grad_(learns), torch.ones_like(q))
        with pytest.raises(RuntimeError, match=r"no forward-mode derivative|implement the jvp"):
            ls.attention(dual, k, v, Window(5, 5), backend=backend)
        # Nothing of this call is.
        ls.attention(k, k, v, Window(5, 5), backend=backend)


def test_a_map_is_of_values_that_mean_something() -> None:
    q, k, _ = inputs()
    with pytest.raises(ValueError, match="variance"):
        ls.attention_map(q, k, weight=Bell(torch.full((1, 2, 40), -1.0)))
