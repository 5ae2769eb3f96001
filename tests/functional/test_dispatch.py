"""Which backend runs a call."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import longspan as ls
from longspan.functional import dispatch
from longspan.kernels.problem import Problem
from longspan.patterns import Window
from longspan.weights import Bell, Place, Weight

Q = torch.randn(1, 1, 9, 4)


class Picky:
    """A backend that takes nothing."""

    @staticmethod
    def unsupported_reasons(problem: Problem) -> list[str]:
        return ["needs a full moon", f"takes 8 queries at most, got {problem.q.shape[2]}"]


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = {"picky": Picky, **dispatch.BACKENDS}
    monkeypatch.setattr(dispatch, "BACKENDS", backends)


def test_auto_takes_the_first_that_accepts(picky: None) -> None:
    found = ls.explain(Q, Q, Q, Window(1, 1))
    assert found.backend in ("cpu", "torch")
    assert found.refusals["picky"][1] == "takes 8 queries at most, got 9"
    assert "picky refused: needs a full moon" in str(found)
    ls.attention(Q, Q, Q, Window(1, 1))


def test_a_named_backend_never_falls_back(picky: None) -> None:
    with pytest.raises(ValueError, match=r"backend='picky' does not take.* full moon, takes 8 que"):
        ls.attention(Q, Q, Q, Window(1, 1), backend="picky")  # type: ignore[arg-type]


def test_refusals_list_every_reason(picky: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "BACKENDS", {"picky": Picky, "other": Picky})
    with pytest.raises(ValueError, match=r"picky: needs .*; other: needs"):
        ls.attention(Q, Q, Q)
    assert ls.explain(Q, Q, Q).backend is None


WITHOUT_COMPILED_PART = """
import sys, warnings
sys.modules["longspan.kernels.cpu._native"] = None
import torch, longspan as ls
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    q = torch.randn(1, 1, 4, 4)
    for _ in range(3):
        ls.attention(q, q, q)
q = torch.randn(1, 12, 300, 4)
print(len(caught), caught[0].category.__name__, ls.explain(q, q, q).backend)
"""


def test_says_once_that_nothing_was_compiled() -> None:
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILED_PART], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["1", "RuntimeWarning", "torch"], found.stderr


def test_short_calls_go_dense_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch.cpu, "available", lambda: False)
    short, long = torch.randn(1, 1, 20, 4), torch.randn(1, 12, 300, 4)
    dispatch._say_once_when_not_compiled.cache_clear()
    with pytest.warns(RuntimeWarning, match="without its compiled part"):
        found = ls.explain(short, short, short, Window(1, 1))
    assert found.backend == "reference" and "faster dense" in found.notes[-1]
    assert ls.explain(short, short, short, backend="torch").backend == "torch"
    assert ls.explain(long, long, long, Window(1, 1)).backend != "reference"
    want = ls.attention(short, short, short, Window(1, 1), backend="torch")
    torch.testing.assert_close(ls.attention(short, short, short, Window(1, 1)), want)


class Capped(Weight):
    """Scores that are no larger than five."""

    def on_scores(self, scores: torch.Tensor, place: Place) -> torch.Tensor:
        return 5 * (scores / 5).tanh()


def test_the_reference_takes_weights_that_nobody_else_knows() -> None:
    q, k, v = (torch.randn(1, 2, 300, 8) for _ in range(3))
    dispatch.say_once_that_it_is_dense.cache_clear()
    with pytest.warns(RuntimeWarning, match="a weight of your own"):
        found = ls.attention(q, k, v, Window(3, 3), weight=Capped())
    wanted = ls.attention(q, k, v, Window(3, 3), weight=Capped(), backend="reference")
    assert torch.equal(found, wanted)
    told = ls.explain(q, k, v, Window(3, 3), weight=[Capped(), Bell(9.0, threshold=0.5)])
    assert told.backend == "reference"
    assert told.pairs == ls.explain(q, k, v, Window(3, 3), weight=Bell(9.0, threshold=0.5)).pairs
    with pytest.raises(TypeError, match=r"Capped\(\) has no form for kernels"):
        ls.attention(q, k, v, Window(3, 3), weight=Capped(), backend="torch")
