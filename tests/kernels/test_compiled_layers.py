"""Layers that share masks, in programs that are compiled, and recorded as graphs, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.functional import Backend
from longspan.layout import remembered
from longspan.models import Config, Encoder
from longspan.nn import LearnedWindow
from longspan.patterns import Global, Window
from longspan.weights import Bell

N = 333

# Of a result's norm: three layers in bfloat16 are 0.007 off at most, those with another step's
# masks 0.4 at least.
TOLERANCE = 0.02


def layers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    variance: Tensor,
    mask: Tensor,
    real: Tensor,
    backend: Backend = "auto",
) -> Tensor:
    attention = partial(ls.attention, backend=backend)
    for _ in range(3):
        tokens = Global(mask & real)
        bell = Bell(variance, threshold=0.5, exempt=tokens)
        q = q + attention(q, k, v, Window(90, 90) | tokens, weight=bell, key_padding=real)
        q = q + attention(q, k, v, Window(20, 20))
    return q


def inputs(step: int) -> list[Tensor]:
    torch.manual_seed(step)
    q, k, v, grad = (torch.randn(2, 2, N, 64, device="cuda").bfloat16() for _ in range(4))
    variance = torch.rand(2, 2, N, device="cuda") * 900 + 1
    mask = torch.rand(2, N, device="cuda") < 0.03
    real = torch.arange(N, device="cuda") < torch.tensor([[N], [N - 20 * step]], device="cuda")
    return [q, k, v, variance, mask, real, grad]


def results(
    function: Callable[..., Tensor], tensors: list[Tensor], masks: list[Tensor], grad: Tensor
) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in tensors]
    y = function(*leaves, *masks)
    return [x.detach().clone() for x in (y, *torch.autograd.grad(y, leaves, grad))]


# torch's compiler itself does what torch warns of, and begins by recording a graph of nothing.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_layers(mode: str) -> None:
    program = torch.compile(layers, mode=mode, dynamic=False)
    kept = inputs(0)
    for step in range(6):
        # Half of the time in the same objects.
        given = inputs(step)
        if step % 2:
            for to, x in zip(kept, given, strict=True):
                to.copy_(x)
            given = kept
        *tensors, mask, real, grad = given
        torch.compiler.cudagraph_mark_step_begin()
        found = results(program, tensors, [mask, real], grad)
        exact = partial(layers, backend="reference")
        wanted = results(exact, [x.double() for x in tensors], [mask, real], grad.double())
        for name, have, want in zip(("y", "q", "k", "v", "variance"), found, wanted, strict=True):
            off = float((have.double() - want).norm() / want.norm())
            assert off < TOLERANCE, (step, name, off)


def marked(mask: Tensor, real: Tensor) -> None:
    """As a compiled program of somebody's changes masks, where they are."""
    mask[:, 5] = True
    real[:, -3:] = False


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_layers_that_are_compiled_one_by_one(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share one layout of a batch's masks, and see every change of these."""
    stamps = []
    found = remembered._LAYOUTS.found

    def noted(*arguments: Any, stamp: Tensor | None) -> Any:
        stamps.append(stamp)
        return found(*arguments, stamp=stamp)

    config = Config(vocab=20, width=64, layers=3, heads=1, length=N)
    torch.manual_seed(0)
    encoder = Encoder(
        config,
        lambda layer: LearnedWindow(
            64, 1, mean_reach=20, max_reach=90, most_global=16, global_projections=True
        ),
    ).cuda()
    plain = deepcopy(encoder).double()
    change = torch.compile(marked)
    for block in encoder.blocks:
        own: Any = block
        own.forward = torch.compile(block.forward, mode=mode, dynamic=True)
    tokens = torch.arange(2 * N, device="cuda").view(2, N) % 20
    for batch in range(3):
        *_, mask, real, _ = inputs(batch)
        for changed in (False, False, True):
            if changed:
                change(mask, real)
            stamps.clear()
            monkeypatch.setattr(remembered._LAYOUTS, "found", noted)
            torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast("cuda", torch.bfloat16):
                y = encoder(tokens, key_padding=real, global_tokens=mask).clone()
            monkeypatch.undo()
            # The first step is watched by torch, in a way that lets nothing be kept.
            if mode == "default" and batch:
                assert stamps and all(own is stamps[0] for own in stamps)
            want = plain(tokens, key_padding=real.clone(), global_tokens=mask.clone())
            off = float((y.detach().double() - want)[real].norm() / want[real].norm())
            assert off < TOLERANCE, (batch, changed, off)
