"""Who is timed: a contender makes its inputs and its call when its turn comes, not before."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from ..functional import attention, explain
from ..measure import Size
from ..normalizers import Normalizer
from ..patterns import Pattern
from ..weights import Weight
from .capturing import captured

__all__ = ["NOT_INSTALLED", "Contender", "Unavailable", "Work", "attending", "installed"]

NOT_INSTALLED = "not installed: pip install 'longspan[bench]'"


class Unavailable(Exception):
    """A contender cannot run here; the message says why."""


def installed(module: str) -> ModuleType:
    """A peer's module, imported only here, since all peers are optional."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(NOT_INSTALLED) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A call that is ready to be timed.

    Attributes:
        forward: the call itself.
        leaves: what a backward pass gives gradients to; empty where there is none to time.
        pairs: that exist, over samples and heads.
        tiles: that longspan's layout touches.
        flops: of the forward, where the call is a plain matrix product.
        repeats: how often one call of `forward` does the thing: short ones, that a clock would not
            tell apart, do it more than once.
        graph: whether forward and backward together are timed as a CUDA graph, without what Python
            does before each launch.
    """

    forward: Callable[[], object]
    leaves: tuple[Tensor, ...] = ()
    pairs: int = 0
    tiles: int = 0
    flops: int = 0
    repeats: int = 1
    graph: bool = False

    def without_gradients(self) -> None:
        """The forward pass alone."""
        with torch.no_grad():
            self.forward()

    def with_gradients(self) -> Callable[[], None]:
        """Forward and backward together, with a gradient of the output that is made here, once."""
        step, on_gpu = self._step(), self.leaves[0].is_cuda
        if self.graph:
            # The first compiles, on the stream that compilers expect.
            step()
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            # A backward runs on the stream of its forward.
            with torch.cuda.stream(stream):
                step()
                step()
                step = captured(step, stream).replay

        def both() -> None:
            step()
            if on_gpu:
                torch.cuda.synchronize()

        return both

    def _step(self) -> Callable[[], None]:
        # With gradients, as it is timed: a call that compiles itself compiles this alone.
        like = self.forward()
        assert isinstance(like, Tensor)
        source = torch.Generator().manual_seed(1)
        grad = torch.randn(like.shape, generator=source).to(like.device, like.dtype)

        def step() -> None:
            out = self.forward()
            assert isinstance(out, Tensor)
            torch.autograd.grad(out, self.leaves, grad)

        return step


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """Something to time.

    Attributes:
        name: what the table calls it.
        size: of the call.
        make: gives the call, or raises `Unavailable`.
        threads: torch's number of them; None for that of the whole run.
        group: contenders of one group take turns; groups come one after the other.
        forward: whether to time the forward pass alone.
        both: whether to time forward and backward together.
    """

    name: str
    size: Size
    make: Callable[[Size], Work]
    threads: int | None = None
    group: str = ""
    forward: bool = True
    both: bool = True


def attending(
    pattern: Callable[[Size], Pattern | None] | Pattern | None = None,
    *,
    weight: Callable[[Size], Weight] | None = None,
    normalizer: Callable[[Size], Normalizer] | None = None,
) -> Callable[[Size], Work]:
    """longspan's own contender: `attention`, with gradients to q, k, v and whatever is learned.

    Pairs and tiles are counted by `explain`, in the layout that the kernels walk.
    """

    def make(size: Size) -> Work:
        q, k, v = size.inputs()
        found = pattern(size) if callable(pattern) else pattern
        given = weight(size) if weight is not None else None
        normal = normalizer(size) if normalizer is not None else None
        learned = [
            getattr(owner, name)
            for owner in (given, normal)
            if owner is not None
            for name in owner.learned
        ]
        leaves = [x for x in learned if isinstance(x, Tensor) and x.requires_grad]
        told = explain(q, k, v, found, weight=given, normalizer=normal)
        return Work(
            forward=lambda: attention(q, k, v, found, weight=given, normalizer=normal),
            leaves=(q, k, v, *leaves),
            pairs=told.pairs,
            tiles=told.tiles,
        )

    return make
