"""Problems of one interval a row, and what of them the dense reference says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from longspan.functional.attention import Call, prepared
from longspan.functional.problems import dense_problem, problem_of
from longspan.kernels.problem import BellTerm, Problem
from longspan.patterns import Global, Pattern
from longspan.weights import Bell


@dataclass
class Asked:
    """A problem in the interpreter's dtype, and its inputs."""

    q: Tensor
    k: Tensor
    v: Tensor
    pattern: Pattern
    weight: Bell | None = None
    real: Tensor | None = None

    @cached_property
    def problem(self) -> Problem:
        call = self._call()
        return problem_of(self.q, self.k, self.v, call.meaning, call.settings)

    def _call(self) -> Call:
        return prepared(
            *(self.q, self.k, self.v, self.pattern), weight=self.weight, key_padding=self.real
        )

    @cached_property
    def exists(self) -> Tensor:
        """Which pairs exist, `(B, H, N, M)`."""
        call = self._call()
        found = dense_problem(self.q, self.k, call.meaning, call.settings).exists
        return found.expand(*self.q.shape[:3], self.k.shape[2])

    @cached_property
    def exempt(self) -> Tensor:
        """Which pairs a bell leaves alone, `(B|1, 1, N, M)`."""
        n, m = self.q.shape[2], self.k.shape[2]
        if self.weight is None or self.weight.exempt is None:
            return torch.zeros(1, 1, n, m, dtype=torch.bool)
        return self.weight.exempt.dense(n, m)

    def _global(self, part: str) -> Tensor:
        """Rows or keys that are global in some sample, bool."""
        n, m = self.q.shape[2], self.k.shape[2]
        found = torch.zeros(n if part == "rows" else m, dtype=torch.bool)
        owners = [self.pattern, *self.pattern.children()]
        owners += [] if self.weight is None else [self.weight.exempt]
        for owner in owners:
            if isinstance(owner, Global):
                named = owner.global_rows if part == "rows" else owner.global_columns
                tokens = named(n, m, torch.device("cpu"))
                if tokens is not None:
                    found |= tokens.any(0)
        return found

    @cached_property
    def global_rows(self) -> Tensor:
        return self._global("rows")

    @cached_property
    def global_keys(self) -> Tensor:
        return self._global("keys")

    @property
    def variance(self) -> Tensor | None:
        """Of the bell, for every row, `(B, H, N)`."""
        for term in self.problem.terms:
            assert isinstance(term, BellTerm)
            return term.variance.expand(self.q.shape[:3])
        return None


def ask(
    pattern: Pattern,
    weight: Bell | None,
    n: int,
    m: int,
    heads: int = 2,
    key_heads: int = 1,
    real: Tensor | None = None,
) -> Asked:
    q = torch.randn(2, heads, n, 24)
    k, v = (torch.randn(2, key_heads, m, 24) for _ in range(2))
    return Asked(q, k, v, pattern, weight, real)


def padded(kind: str, m: int) -> Tensor:
    """Real keys of two samples, the second of which has padding behind them, before them, between
    them, or nothing else.
    """
    j = torch.arange(m)
    second = {
        "behind": j < m - 30,
        "before": j >= 30,
        "between": (j % 7 != 0) & (j >= 10) & (j < m - 12) & ((j < 40) | (j >= 46)),
        "everywhere": j < 0,
    }[kind]
    return torch.stack([j < m, second])


def bells(n: int, kind: str) -> Bell | None:
    """Bells for two samples of two heads; `max_reach` alone, or no reach at all, are one number for
    all rows.
    """
    each = torch.rand(2, 2, n) * 300 + 1
    return {
        "none": None,
        "each": Bell(each, threshold=0.5),
        "each at most": Bell(each, threshold=0.5, max_reach=9),
        "by head": Bell(each[:1], threshold=0.3),
        "by sample": Bell(each[:, :1, :1], threshold=0.1),
        "shared": Bell(each[:1, :1], threshold=0.5),
        "uncut": Bell(each),
        "same reach": Bell(each, max_reach=7),
        "number": Bell(40.0, threshold=0.5),
        "exempt": Bell(each, threshold=0.5, exempt=Global(torch.tensor([3, 50]))),
    }[kind]
