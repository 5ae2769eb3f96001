"""Entmax: inside attention against softmax, and as a plain function against the entmax library."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ... import normalizers
from ...functional import entmax, entmax15
from ...measure import Size
from ...normalizers import Entmax, Softmax
from ...patterns import Window
from .. import peers
from ..contenders import Contender, Work, attending
from ..problem import Problem, Results, size_of
from ..records import Figure
from .window import REACH

__all__ = ["entmax_attention", "entmax_functions"]


def _learned(size: Size) -> Entmax:
    """An α for every head, from nearly softmax to nearly sparsemax."""
    return Entmax(torch.linspace(1.1, 1.9, size.heads).requires_grad_())


def entmax_attention(quick: bool) -> Problem:
    """Windowed, against windowed softmax."""
    size = size_of(quick)
    window = Window(REACH, REACH)
    kinds: dict[str, tuple[Callable[[Size], normalizers.Normalizer], float]] = {
        "1.5-entmax": (lambda size: Entmax(1.5), 2.0),
        "entmax, learned α": (_learned, 3.5),
    }

    def judge(results: Results) -> list[Figure]:
        return [
            results.figure(
                f"windowed {name} against softmax",
                "× the time",
                results.ratio(name, "softmax"),
                (most, most),
            )
            for name, (_, most) in kinds.items()
        ]

    everyone = {"softmax": (lambda size: Softmax(), 0.0)} | kinds
    return Problem(
        name="entmax-attention",
        title="entmax in a window of 128",
        ours=tuple(
            Contender(name=name, size=size, make=attending(window, normalizer=make))
            for name, (make, _) in everyone.items()
        ),
        judge=judge,
    )


ROW = 1024


def _scores(size: Size) -> Tensor:
    """Rows of scores as attention has them, standard normal: `(heads, rows, 1024)`."""
    source = torch.Generator().manual_seed(0)
    return torch.randn(size.heads, size.length, ROW, generator=source).requires_grad_()


def _alphas(size: Size) -> Tensor:
    return torch.linspace(1.1, 1.9, size.heads).view(-1, 1, 1).requires_grad_()


def entmax_functions(quick: bool) -> Problem:
    """`ls.entmax15` and `ls.entmax` on rows of 1,024, against the entmax library."""
    size = Size(heads=8, length=8 if quick else 128)

    def fixed(function: Callable[[Tensor], Callable[[], Tensor]]) -> Callable[[Size], Work]:
        def make(size: Size) -> Work:
            scores = _scores(size)
            return Work(forward=function(scores), leaves=(scores,))

        return make

    def learned(
        function: Callable[[Tensor, Tensor], Callable[[], Tensor]],
    ) -> Callable[[Size], Work]:
        def make(size: Size) -> Work:
            scores, alpha = _scores(size), _alphas(size)
            return Work(forward=function(scores, alpha), leaves=(scores, alpha))

        return make

    def judge(results: Results) -> list[Figure]:
        figures = []
        for name, least in (("entmax15", 15), ("entmax, learned α", 30)):
            figures += [
                results.figure(
                    f"{name}, rows of 1,024, against the entmax library",
                    "× faster",
                    results.ratio(f"{name}: entmax library", f"{name}: longspan"),
                    (least, least),
                    at_least=True,
                    of=[f"{name}: entmax library"],
                ),
                results.figure(
                    f"  {name} against torch.softmax",
                    "× the time",
                    results.ratio(f"{name}: longspan", "torch.softmax"),
                ),
            ]
        return figures

    return Problem(
        name="entmax-functions",
        title="entmax as a plain function",
        ours=(
            Contender(
                name="entmax15: longspan", size=size, make=fixed(lambda x: lambda: entmax15(x))
            ),
            Contender(
                name="entmax, learned α: longspan",
                size=size,
                make=learned(lambda x, alpha: lambda: entmax(x, alpha)),
            ),
        ),
        peers=(
            Contender(
                name="entmax15: entmax library", size=size, make=fixed(peers.entmax15_library)
            ),
            Contender(
                name="entmax, learned α: entmax library",
                size=size,
                make=learned(peers.entmax_library),
            ),
            Contender(
                name="torch.softmax",
                size=size,
                make=fixed(lambda x: lambda: torch.softmax(x, -1)),
            ),
        ),
        judge=judge,
    )
