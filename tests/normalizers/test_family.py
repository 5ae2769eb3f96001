"""The normalisers as objects."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import longspan as ls
from longspan.normalizers import Entmax, Normalizer, Softmax, Sparsemax

from .oracle import by_bisection

EVERY: dict[str, tuple[Normalizer, Any]] = {
    "Softmax": (Softmax(), 1.0),
    "Sparsemax": (Sparsemax(), 2.0),
    "Entmax": (Entmax(), 1.5),
    "Entmax(1)": (Entmax(1), 1.0),
    "Entmax(1.3)": (Entmax(1.3), 1.3),
    "Entmax(2)": (Entmax(2), 2.0),
    "Entmax, one for all": (Entmax(torch.tensor(1.7)), 1.7),
    "Entmax, a head": (Entmax(torch.tensor([1.0, 1.4, 2.0])), torch.tensor([1.0, 1.4, 2.0])),
}
every = pytest.mark.parametrize("name", EVERY)


def test_every_public_normaliser_is_tried() -> None:
    public = {
        value
        for name in ls.normalizers.__all__
        if isinstance(value := getattr(ls.normalizers, name), type)
    }
    assert public - {Normalizer} == {type(normalizer) for normalizer, _ in EVERY.values()}


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_probabilities_are_over_the_pairs_that_exist(name: str, dtype: torch.dtype) -> None:
    normalizer, alpha = EVERY[name]
    scores = torch.randn(2, 3, 5, 7, dtype=dtype)
    exists = torch.rand(2, 3, 5, 7) < 0.6
    exists[0, 1, 2] = False
    p = normalizer.probabilities(scores, exists)
    assert p.dtype == dtype and p.shape == scores.shape
    order = torch.as_tensor(alpha).reshape(-1, 1, 1)
    wanted = by_bisection(scores.masked_fill(~exists, -math.inf), order)
    bound = 1e-6 if dtype == torch.float32 else 1e-7
    torch.testing.assert_close(p.double(), wanted, rtol=1e-5, atol=bound)
    assert (p[~exists] == 0).all() and (p[0, 1, 2] == 0).all()
    filled = exists.any(-1)
    torch.testing.assert_close(p.sum(-1)[filled], torch.ones(int(filled.sum()), dtype=dtype))


@every
def test_scores_of_pairs_that_do_not_exist_do_not_matter(name: str) -> None:
    normalizer, _ = EVERY[name]
    scores = torch.randn(2, 3, 5, 7)
    exists = torch.rand(2, 3, 5, 7) < 0.6
    p = normalizer.probabilities(scores, exists)
    for odd in (math.nan, math.inf, -math.inf, 1e30):
        assert torch.equal(normalizer.probabilities(scores.masked_fill(~exists, odd), exists), p)


@every
def test_a_normaliser_is_its_fields(name: str) -> None:
    normalizer, _ = EVERY[name]
    text = repr(normalizer)
    assert "\n" not in text and text.startswith(type(normalizer).__name__)
    for twin in (pickle.loads(pickle.dumps(normalizer)), copy.deepcopy(normalizer)):
        assert repr(twin) == text


def test_repr() -> None:
    assert repr(Softmax()) == "Softmax()"
    assert repr(Sparsemax()) == "Sparsemax()"
    assert repr(Entmax(1.3)) == "Entmax(1.3)"


def test_alpha_learns() -> None:
    alpha = torch.tensor([1.2, 1.5, 1.9], dtype=torch.float64, requires_grad=True)
    scores = torch.randn(2, 3, 2, 5, dtype=torch.float64, requires_grad=True)
    exists = torch.ones(1, 1, 2, 5, dtype=torch.bool)
    assert torch.autograd.gradcheck(
        lambda a, s: Entmax(a).probabilities(s, exists), (alpha, scores)
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Entmax(0.99), ValueError, "Entmax: alpha .*0.99"),
        (lambda: Entmax(2.01), ValueError, "Entmax: alpha .*2.01"),
        (lambda: Entmax(-1), ValueError, "Entmax: alpha .*-1"),
        (lambda: Entmax(math.nan), ValueError, "Entmax: alpha .*nan"),
        (lambda: Entmax(True), TypeError, "Entmax: alpha .*True"),
        (lambda: Entmax(None), TypeError, "Entmax: alpha .*None"),
        (lambda: Entmax("1.5"), TypeError, "Entmax: alpha .*'1.5'"),
        (lambda: Entmax([1.5]), TypeError, "Entmax: alpha .*list"),
        (lambda: Entmax(torch.tensor([1, 2])), TypeError, "Entmax: alpha .*int64"),
        (lambda: Entmax(torch.tensor([True])), TypeError, "Entmax: alpha .*bool"),
        (lambda: Entmax(torch.full((2, 1), 1.5)), ValueError, r"Entmax: alpha .*\(2, 1\)"),
    ],
)
def test_bad_input(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_probabilities_are_those_of_alpha() -> None:
    with pytest.raises(TypeError, match="give alpha"):

        class Halved(Softmax):
            def probabilities(self, scores: torch.Tensor, exists: torch.Tensor) -> torch.Tensor:
                return super().probabilities(scores / 2, exists)
